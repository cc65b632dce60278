/* test_jobs.h: what the engine's tests share: models that compute on the CPU, jobs of every kind, and the ids that each
 * has by itself. For tests alone. */
#ifndef TESTS_SUPPORT_TEST_JOBS_H
#define TESTS_SUPPORT_TEST_JOBS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include "engine/engine.h"
#include "gguf_build.h"

#include <cmocka.h>

#include <pthread.h>

extern char test_text[2048];
extern const struct wk_err test_err;
void ok(wk_status status);

/* The registry of the plugins; before anything else. 0, or the program's exit status. */
int test_open_plugins(void);
void test_close_plugins(void);
const struct plugin_registry *test_plugins(void);

/* ---- models -------------------------------------------------------------------------------------------- */
enum { TEST_VOCAB = 50, TEST_CONTEXT = 400 };
struct test_model {
    struct model *m;
    struct gguf_build *file;
};
/* A small llama with random weights; what is 0 in dev is as follows: 2 threads, 8 sequences, 64 rows. */
struct test_model test_llama(const struct device_ops *device, struct device_options dev, float head);
struct test_model test_file(const struct device_ops *device, const char *path,
                            struct device_options dev); /* the same defaults */
void test_unload(struct test_model *t);

/* The CPU's device, with a gate before each step and faults as told. One at a time; reset by test_device. */
struct test_control {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t permits; /* steps that may still begin; UINT64_MAX: any number */
    uint64_t waiting; /* steps that wait at the gate, that have begun */
    uint64_t begun, cancelled;
    uint64_t fail_at, fail_to; /* the step, counted from 1, that fails, 0: none; with fail_to all up to that one */
    wk_status fail_with;
    bool fail_in_collect, die; /* die: the device is dead then */
    uint32_t spoil_slot;       /* whose rows fail; UINT32_MAX: nobody's */
    bool refuse_samplers;
};
extern struct test_control test_control;
const struct device_ops *test_device(uint32_t run_ahead, uint64_t permits);
void test_permit(uint64_t n);         /* n steps more; UINT64_MAX: any number */
void test_await_gate(uint64_t begun); /* until so many steps have begun and the next one waits at the gate */

/* ---- jobs ---------------------------------------------------------------------------------------------- */
struct test_job {
    struct sampler_params params;
    uint32_t n, tokens[TEST_CONTEXT], most, n_ends, ends[2];
    uint64_t owner;
    struct engine_salt salt;
};
/* Job number i: prompts of 1 to 230 tokens of both kernel classes, greedy and every kind of sampling; some end with an
 * id. */
struct test_job test_make(uint32_t i);
/* What the job gives by itself, by a generator on a model of one sequence: ids [most]; returns how many. */
uint32_t test_alone(struct model *m, const struct test_job *t, uint32_t *ids, enum job_end *end);

struct engine *test_engine(struct model *m, struct engine_options o);  /* zeros: all of the model, a queue of 64 */
struct engine_job test_spec(const struct test_job *t, const char *id); /* which it borrows */
struct job *test_submit_spec(struct engine *e, const struct engine_job *spec);
struct job *test_submit(struct engine *e, const char *id, const struct test_job *t, int32_t priority,
                        uint64_t deadline_ns);
/* What every job of test_make gives by itself, by a generator on a model of one sequence. */
struct test_answer {
    uint32_t n, ids[TEST_CONTEXT];
    enum job_end end;
};
void test_answers(struct model *m, struct test_answer *out, uint32_t n);
void test_llama_answers(struct test_answer *out, uint32_t n); /* of test_llama's weights */
/* Reads a job to its end, compares and releases it. cut: it may have ended early, for a reason of its own: what it gave
 * is the beginning. */
void test_check(struct job *j, const char *name, const struct test_answer *want, bool cut);
/* Reads to the end: started, ids in order and numbered, the end; returns how many ids. The job stays. */
uint32_t test_read(struct job *j, uint32_t *ids, uint32_t cap, enum job_end *end);
void test_nap(void); /* 0.2 ms */
/* For what another thread does behind an event that was seen: at least ten seconds. */
#define test_wait_for(condition)                                        \
    do {                                                                \
        for (uint32_t naps_ = 0; !(condition); naps_++) {               \
            if (naps_ == 50000) fail_msg("never came: %s", #condition); \
            test_nap();                                                 \
        }                                                               \
    } while (0)
void test_wait_idle(struct engine *e);               /* then all pages must be back */
void test_wait_unused(struct engine *e);             /* idle, and all pages are back, as leases give theirs up later */
void test_wait_generated(struct job *j, uint32_t n); /* until it has generated n ids */
uint64_t test_started(const struct job *j);          /* when it began; 0: not yet */
uint64_t test_now(void);

#endif
