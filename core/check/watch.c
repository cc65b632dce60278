/* watch.c: see watch.h. */
#include "check/watch.h"

#include "check/guard.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static _Atomic(const char *) seen;

const char *watch_seen(void) { return atomic_load(&seen); }
void watch_forget(void) { atomic_store(&seen, NULL); }

static void saw(const char *name)
{
    const char *none = NULL;
    (void)atomic_compare_exchange_strong(&seen, &none, name);
}

/* ---- the functions ------------------------------------------------------------------------------------- */

static void *watch_malloc(size_t n)
{
    saw("malloc");
    return malloc(n);
}
static void *watch_calloc(size_t n, size_t size)
{
    saw("calloc");
    return calloc(n, size);
}
static void *watch_realloc(void *p, size_t n)
{
    saw("realloc");
    return realloc(p, n);
}
static void *watch_aligned_alloc(size_t align, size_t n)
{
    saw("aligned_alloc");
    return aligned_alloc(align, n);
}
static void *watch_memalign(size_t align, size_t n)
{
    saw("memalign");
    return memalign(align, n);
}
static int watch_posix_memalign(void **p, size_t align, size_t n)
{
    saw("posix_memalign");
    return posix_memalign(p, align, n);
}
static void watch_free(void *p)
{
    saw("free");
    free(p);
}
static void *watch_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    saw("mmap");
    return mmap(at, n, protection, flags, fd, offset);
}
static int watch_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *), void *user)
{
    saw("pthread_create");
    return pthread_create(thread, attributes, fn, user);
}
static int watch_mutex_lock(pthread_mutex_t *mutex)
{
    saw("pthread_mutex_lock");
    return pthread_mutex_lock(mutex);
}
/* C++: what new and delete come to. */
static void *watch_new(size_t n)
{
    saw("operator new");
    return malloc(n);
}
static void watch_delete(void *p)
{
    saw("operator delete");
    free(p);
}
static void watch_delete_sized(void *p, size_t n)
{
    (void)n;
    watch_delete(p);
}

typedef void (*any_function)(void);
static const struct {
    const char *name;
    any_function to;
} watched[] = {
    { "malloc", (any_function)watch_malloc },
    { "calloc", (any_function)watch_calloc },
    { "realloc", (any_function)watch_realloc },
    { "aligned_alloc", (any_function)watch_aligned_alloc },
    { "memalign", (any_function)watch_memalign },
    { "posix_memalign", (any_function)watch_posix_memalign },
    { "free", (any_function)watch_free },
    { "mmap", (any_function)watch_mmap },
    { "mmap64", (any_function)watch_mmap },
    { "pthread_create", (any_function)watch_pthread_create },
    { "pthread_mutex_lock", (any_function)watch_mutex_lock },
    { "_Znwm", (any_function)watch_new },
    { "_Znam", (any_function)watch_new },
    { "_ZdlPv", (any_function)watch_delete },
    { "_ZdaPv", (any_function)watch_delete },
    { "_ZdlPvm", (any_function)watch_delete_sized },
    { "_ZdaPvm", (any_function)watch_delete_sized },
};

/* What the dynamic linker knows of the object that is mapped there; NULL: there is none, and err says so. */
static const struct link_map *find_map(const void *address, const struct wk_err *err)
{
    Dl_info info;
    void *found = NULL;
    if (dladdr1(address, &info, &found, RTLD_DL_LINKMAP) && found) return found;
    (void)wk_fail(err, WK_INTERNAL, "nothing is mapped at %p", address);
    return NULL;
}

/* ---- the slots ----------------------------------------------------------------------------------------- */

static bool is_slot(uint64_t type)
{
#if defined(__x86_64__)
    return type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT || type == R_X86_64_64;
#elif defined(__aarch64__)
    return type == R_AARCH64_JUMP_SLOT || type == R_AARCH64_GLOB_DAT || type == R_AARCH64_ABS64;
#else
    (void)type;
    return false;
#endif
}

/* Pages that the linker has made read-only since, as a rule. */
static bool store(const struct link_map *map, uint64_t offset, any_function to)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = map->l_addr + offset, first = at & ~(page - 1);
    if (mprotect((void *)first, page, PROT_READ | PROT_WRITE)) return false;
    memcpy((void *)at, &to, sizeof to);
    return true;
}

struct tables {
    const Elf64_Sym *symbols;
    const char *names;
    const Elf64_Rela *rela[2];
    uint64_t bytes[2];
};

static struct tables find_tables(const struct link_map *map)
{
    struct tables t = { 0 };
    for (const Elf64_Dyn *d = map->l_ld; d->d_tag != DT_NULL; d++) {
        /* The linker writes addresses over the file's offsets, but not where that section is read-only. */
        const uintptr_t value = d->d_un.d_ptr, p = value < map->l_addr ? map->l_addr + value : value;
        switch (d->d_tag) {
        case DT_SYMTAB: t.symbols = (const Elf64_Sym *)p; break;
        case DT_STRTAB: t.names = (const char *)p; break;
        case DT_RELA: t.rela[0] = (const Elf64_Rela *)p; break;
        case DT_JMPREL: t.rela[1] = (const Elf64_Rela *)p; break;
        case DT_RELASZ: t.bytes[0] = d->d_un.d_val; break;
        case DT_PLTRELSZ: t.bytes[1] = d->d_un.d_val; break;
        default: break;
        }
    }
    return t;
}

wk_status watch_install(const void *address, const struct wk_err *err)
{
    const struct link_map *map = find_map(address, err);
    if (!map) return WK_INTERNAL;
    const struct tables t = find_tables(map);
    for (uint32_t i = 0; i < 2 && t.symbols && t.names; i++)
        for (uint64_t n = 0; t.rela[i] && n < t.bytes[i] / sizeof(Elf64_Rela); n++) {
            const Elf64_Rela *r = &t.rela[i][n];
            const char *name = t.names + t.symbols[ELF64_R_SYM(r->r_info)].st_name;
            for (size_t w = 0; w < sizeof watched / sizeof *watched && is_slot(ELF64_R_TYPE(r->r_info)); w++)
                if (strcmp(name, watched[w].name) == 0 && !store(map, r->r_offset, watched[w].to))
                    return wk_fail(err, WK_INTERNAL, "the plugin's slot of %s cannot be written: %s", name,
                                   strerror(errno));
        }
    return WK_OK;
}

/* ---- the plugin's data --------------------------------------------------------------------------------- */

struct frozen {
    const struct link_map *map;
    bool read_only, failed;
};

/* Of the writable segments of the object in question, the pages that the linker has left writable. */
static int freeze_object(struct dl_phdr_info *info, size_t size, void *user)
{
    struct frozen *f = user;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t relro = 0;
    (void)size;
    if (info->dlpi_addr != f->map->l_addr) return 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_GNU_RELRO)
            relro = (info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz) & ~(page - 1);
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const Elf64_Phdr *p = &info->dlpi_phdr[i];
        uintptr_t begin = (info->dlpi_addr + p->p_vaddr) & ~(page - 1);
        const uintptr_t end = (info->dlpi_addr + p->p_vaddr + p->p_memsz + page - 1) & ~(page - 1);
        if (p->p_type != PT_LOAD || !(p->p_flags & PF_W)) continue;
        if (relro > begin && relro <= end) begin = relro;
        if (begin < end && mprotect((void *)begin, end - begin, f->read_only ? PROT_READ : PROT_READ | PROT_WRITE))
            f->failed = true;
        if (f->read_only) guard_also((const void *)begin, (const void *)end, "its own static data");
    }
    return 1;
}

wk_status watch_freeze(const void *address, bool frozen, const struct wk_err *err)
{
    struct frozen f = { .map = find_map(address, err), .read_only = frozen };
    if (!f.map) return WK_INTERNAL;
    guard_also(NULL, NULL, NULL);
    (void)dl_iterate_phdr(freeze_object, &f);
    return f.failed ? wk_fail(err, WK_INTERNAL, "the plugin's data cannot be protected") : WK_OK;
}
