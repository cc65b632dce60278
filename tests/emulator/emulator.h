/* emulator.h: what the files of the emulator share: a kernel read from PTX, the warps, blocks and clusters that run it,
 * and device memory.
 *
 * A warp is the unit of execution, as on the device: a register is an array of 32 values, an instruction a loop over
 * them that the host compiler makes vector instructions of. Lanes at different places are groups with a mask and a
 * place each; the group furthest behind runs first, so that groups meet again, and collective instructions wait until
 * the lanes that they name have come. Interpreting costs a few nanoseconds a warp's instruction, compiles nothing, and
 * lets every access be checked; that is why PTX is not translated to C with a fiber a thread. */
#ifndef TESTS_EMULATOR_H
#define TESTS_EMULATOR_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LANES = 32, MAX_WARPS = 32, MAX_CLUSTER = 16, MAX_BARRIERS = 16 };
#define ALL_LANES 0xffffffffu

struct warp;
struct insn;

/* ---- kernels (ptx.c, slots.c) -------------------------------------------------------------------------- */

/* What an instruction tells the loop that runs it. */
enum outcome {
    NEXT,
    JUMP /* imm[0], the active lanes */,
    EXIT,
    BLOCK /* the same instruction again when its group has grown */,
    WAIT /* at the next, when somebody wakes it */,
    PAUSE /* at the next, after the other warps */
};
typedef enum outcome (*insn_fn)(struct warp *w, const struct insn *i);

enum space { SPACE_GENERIC, SPACE_GLOBAL, SPACE_SHARED, SPACE_CLUSTER, SPACE_LOCAL, SPACE_PARAM };

struct insn {
    insn_fn run;
    const int32_t *arg; /* registers: bytes from the warp's first; predicates: index */
    int32_t imm[3]; /* offsets of addresses in the order of the text; target of a branch; else what the instruction's
                       function says */
    int32_t guard;  /* predicate, -1: none */
    uint32_t line;  /* of the module's PTX */
    uint8_t negated, n_args;
    uint8_t wide;       /* bit n: memory operand n has a 64-bit base */
    uint8_t vector;     /* values of a load or store */
    uint8_t space;      /* enum space */
    uint8_t collective; /* an instruction for several lanes at once: never skipped silently by a guard */
};

enum special {
    TID_X,
    TID_Y,
    TID_Z,
    NTID_X,
    NTID_Y,
    NTID_Z,
    CTAID_X,
    CTAID_Y,
    CTAID_Z,
    NCTAID_X,
    NCTAID_Y,
    NCTAID_Z,
    LANEID,
    WARPID,
    NWARPID,
    SMID,
    NSMID,
    LANEMASK_EQ,
    LANEMASK_LT,
    LANEMASK_LE,
    LANEMASK_GT,
    LANEMASK_GE,
    CLUSTER_CTARANK,
    CLUSTER_NCTARANK,
    CLUSTER_CTAID_X,
    CLUSTER_CTAID_Y,
    CLUSTER_CTAID_Z,
    CLUSTER_NCTAID_X,
    CLUSTER_NCTAID_Y,
    CLUSTER_NCTAID_Z,
    CLUSTERID_X,
    CLUSTERID_Y,
    CLUSTERID_Z,
    NCLUSTERID_X,
    NCLUSTERID_Y,
    NCLUSTERID_Z,
    DYNAMIC_SMEM,
    CLOCK,
    CLOCK64,
    GLOBALTIMER,
    SPECIALS
};

struct constant {
    uint8_t special; /* SPECIALS: a number */
    uint8_t bits;    /* 1, 32, 64 */
    uint64_t value;
    const struct symbol *symbol; /* its address is added */
    int32_t at;
};

struct param {
    uint32_t offset, bytes;
};

struct kernel {
    const struct module *module;
    char *name; /* as in the PTX */
    const char *text;
    uint32_t line;
    bool parsed, loaded; /* loaded: was launched, so that its code is in the device's memory */
    struct insn *code;
    uint32_t n_code;
    int32_t *args;
    struct constant *constants;
    uint32_t n_constants;
    unsigned char *constant_values; /* behind the registers of a warp */
    uint32_t register_bytes, constant_bytes, n_predicates;
    uint32_t shared_bytes, dynamic_at,
        local_bytes; /* static shared memory, where the launch's begins, a thread's local memory */
    uint32_t param_bytes, n_params, max_threads, min_blocks, cluster[3];
    struct param *params;
    uint32_t max_dynamic; /* cudaFuncAttributeMaxDynamicSharedMemorySize */
    bool clocks;
};

enum symbol_space { SYM_GLOBAL, SYM_SHARED, SYM_DYNAMIC, SYM_LOCAL, SYM_PARAM };
struct symbol {
    char *name;
    enum symbol_space space;
    uint32_t align;
    uint64_t bytes, address;
    bool used;
    struct symbol *next;
};

struct module {
    const char *ptx;
    uint32_t compute; /* capability that it is for, of .target: 80, 90 */
    struct kernel *kernels;
    uint32_t n_kernels;
    struct symbol *symbols; /* of the module's scope */
    struct function {
        const char *name;
        uint32_t name_bytes;
        const char *text;
        uint32_t line;
        struct function *next;
    } *functions;
};

/* Reads the module's declarations. Ends the process with a message if the PTX is not understood. */
struct module *module_read(const char *ptx);
struct kernel *module_find(struct module *m, const char *name);
/* Reads the kernel's instructions at its first launch; false with a text if there is one that the emulator does not
 * know. */
bool kernel_read(struct kernel *k, char *error, size_t error_bytes);

/* slots.c: virtual registers to as few as possible, so that a warp's registers stay in the cache. */
struct virtual_insn {
    uint32_t first, n, defs;
    int32_t guard;
    bool jumps, falls_through;
    int32_t target;
};
struct virtual_register {
    uint8_t bits;
    int32_t slot;
};
void assign_slots(const struct virtual_insn *code, uint32_t n_code, const int32_t *operands,
                  struct virtual_register *registers, uint32_t n_registers, uint32_t count[3]);

/* The instructions by name: "destinations:sources", i a register of at most 32 bits, a one that is a source as well
 * (named again behind the others), l of 64, p a predicate, m an address; '_' behind a letter: optional. */
struct instruction {
    const char *name, *signature;
    insn_fn run;
    bool collective;
};
const struct instruction *find_instruction(const char *name, uint32_t n_operands);
extern const struct instruction plain_instructions[], warp_instructions[], memory_instructions[], float_instructions[],
    wgmma_instructions[];

/* ---- execution (grid.c) -------------------------------------------------------------------------------- */

struct group {
    uint32_t mask, pc;
    enum { RUNS, BLOCKED, WAITS, PAUSED } state;
    const char *what; /* it waits for */
    uint64_t which;
};

struct late_copy {
    struct late_copy *next;
    uint64_t destination;
    const unsigned char *source;
    unsigned char value[16];
    uint32_t bytes, barrier;
    struct block *to;
    struct warp *by;
    uint32_t lanes, turn;
}; /* by: no copy, but arrivals of its lanes when their copies of up to that turn are there */
struct lane_copy {
    uint32_t group, turn;
    uint8_t lane, bytes, from;
    uint64_t destination, source;
};

struct warp {
    unsigned char *r;       /* registers, then constants */
    uint32_t *p;            /* predicates */
    uint32_t active;        /* lanes of the instruction that runs */
    uint32_t here;          /* lanes of its group, guarded or not */
    uint32_t exited, lanes; /* lanes: those that the block has */
    struct block *block;
    const struct kernel *kernel;
    uint32_t index, n_groups;
    struct group group[LANES], *now;
    const struct insn *insn;
    unsigned char *local;
    struct lane_copy *copies; /* cp.async under way */
    struct late_work *late;   /* wgmma_instructions.c */
    uint32_t n_copies, cap_copies, copy_turn, committed[LANES], cluster_phase[LANES];
    bool idle; /* nothing to run until it is woken */
    uint32_t carry;
};

struct block {
    unsigned char *shared;           /* from address SHARED_BASE */
    uint32_t shared_end;             /* one past the last address */
    uint32_t n_warps, threads, live; /* live: threads that have not ended */
    struct warp *warps;
    struct {
        uint32_t arrived, expected, generation;
    } barrier[MAX_BARRIERS];
    uint32_t at[3], rank;
    struct cluster *cluster;
    struct late_copy *late; /* bulk copies to this block's shared memory, delivered when somebody waits for them */
};

struct cluster {
    const struct launch *launch;
    struct block *block;
    uint32_t n_blocks, arrived, phase, at[3];
    uint64_t live;
};

struct launch {
    struct kernel *kernel;
    uint32_t grid[3], threads[3], cluster[3], dynamic;
    bool cooperative;
    unsigned char *params;
};

/* Runs a grid to its end; false: it failed, the text is in emulator_error and all later calls fail as well. Not for two
 * threads at once. */
bool launch_run(const struct launch *l);

/* An error of the running kernel: the text with kernel, block, thread and line of the PTX; does not return. lane -1:
 * the first active. */
_Noreturn void fault(struct warp *w, int lane, const char *format, ...) __attribute__((format(printf, 3, 4)));
extern char emulator_error[1024];
extern int emulator_error_code; /* cudaError_t, 0: none */

/* For collective instructions: all of wanted (without ended lanes) are here, else BLOCK. */
static inline bool gathered(const struct warp *w, uint32_t wanted) { return ((wanted & ~w->exited) & ~w->active) == 0; }
static inline enum outcome block_for(struct warp *w, const char *what, uint64_t which)
{
    w->now->what = what;
    w->now->which = which;
    return BLOCK;
}
void wake_block(struct block *b, const char *what, uint64_t which);
/* Counts something that a spinning thread could have waited for; without any for long, all that spin are a deadlock. */
extern uint64_t emulator_events;
extern uint32_t emulator_seed; /* 0: warps in order, copies as late as they may be; else both as the seed says */
uint32_t emulator_random(void);

/* ---- memory (memory.c) --------------------------------------------------------------------------------- */

#define SHARED_BASE 1024u /* the device keeps the first KB for itself */
#define RANK_SHIFT 24     /* an address of shared memory of block r of the cluster: (r + 1) << 24 | offset */
#define SHARED_WINDOW                                                                                                 \
    0x0001000000000000ull /* generic addresses of shared memory; no pointer of the host is as high or, in user space, \
                             so low */
#define LOCAL_WINDOW 0x0002000000000000ull

extern uint64_t arena_base, arena_bytes;
/* Device memory ends at a page that nobody may touch, and is never given out twice. */
void *arena_reserve(uint64_t bytes, uint64_t align);
bool arena_open(void *p, uint64_t bytes, bool write);
void arena_shut(void *p, uint64_t bytes);
void *device_alloc(uint64_t bytes);
bool device_free(void *p);
uint64_t device_used(void);
/* Host memory that the device may use. */
void host_add(void *p, uint64_t bytes);
bool host_remove(void *p);
bool host_has(uint64_t at, uint64_t bytes);

/* A pointer to bytes of memory at an address of a space as thread lane sees it; a fault for what is not there or not
 * aligned to align. */
unsigned char *locate(struct warp *w, enum space space, uint64_t at, uint32_t bytes, uint32_t align, int lane,
                      bool write);
void deliver_late(struct block *b, uint32_t barrier); /* what is on its way to this barrier arrives; ~0u: everything */
void mbarrier_complete(struct warp *w, struct block *b, uint32_t at, uint32_t bytes);

/* What the warp has under way of products and bulk stores; NULL: nothing. */
void late_work_free(struct late_work *l);

/* ---- registers ----------------------------------------------------------------------------------------- */

static inline uint32_t *r32(const struct warp *w, const struct insn *i, unsigned n)
{
    return (uint32_t *)(void *)(w->r + i->arg[n]);
}
static inline uint64_t *r64(const struct warp *w, const struct insn *i, unsigned n)
{
    return (uint64_t *)(void *)(w->r + i->arg[n]);
}
static inline uint32_t *pred(const struct warp *w, const struct insn *i, unsigned n) { return w->p + i->arg[n]; }
#define EACH_LANE for (unsigned l = 0; l < LANES; l++)
#define EACH_ACTIVE(w) \
    for (uint32_t m_ = (w)->active, l = 0; m_ && (l = (uint32_t)__builtin_ctz(m_), true); m_ &= m_ - 1)

#endif
