/* arch_test.h: what the tests of every architecture plugin share: toy files made of tables, the plugin's recording of
 * them, and what hostile files must meet with. A test names its plugin and files in one struct arch_test and hands it
 * to the checks below; each fails the test that calls it. */
#ifndef TESTS_SUPPORT_ARCH_TEST_H
#define TESTS_SUPPORT_ARCH_TEST_H

#include <stdbool.h>

#include "test_models.h"

/* A key below the architecture's name. */
struct arch_key {
    const char *name;
    double value;
    bool whole; /* U32, or I64 below 0; else F32 */
};
struct arch_shape {
    const char *name;
    uint32_t rows, cols, slabs;
};
#define ARCH_COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct arch_test {
    const char *plugin; /* "gemma2": gemma2.so of WORKER_PLUGIN_PATH */
    uint32_t n_files;
    const char *(*architecture)(uint32_t file); /* NULL: every file's has the plugin's name */
    struct gguf_build *(*make)(uint32_t file);  /* T_L layers of the sizes in test_models.h; the caller's */
    /* What the refusal of a file must name that lacks the tensor, or has a row more of it; NULL: the file is taken. */
    const char *(*without)(uint32_t file, const char *tensor);
    const char *(*longer)(uint32_t file, const char *tensor);
};

/* ---- files ---- */
void arch_put_keys(struct gguf_build *g, const char *architecture, const struct arch_key *keys, size_t n);
/* Tensors of zeros; prefix: "blk.0." or "". */
void arch_put_tensors(struct gguf_build *g, const char *prefix, const struct arch_shape *shapes, size_t n);
void arch_put_layer(struct gguf_build *g, uint32_t layer, const struct arch_shape *shapes, size_t n);

/* ---- recordings ---- */
const struct wk_arch *arch_of(const struct arch_test *t);        /* from the plugin, through its one symbol */
const char *arch_name(const struct arch_test *t, uint32_t file); /* the file's general.architecture */

struct arch_opened {
    struct gguf_build *build;
    struct gguf *file;
    struct tape_program *p; /* that the checker has passed */
};
/* context: positions a sequence; 0: the file's. g becomes the result's. */
struct arch_opened arch_record_for(const struct arch_test *t, struct gguf_build *g, uint32_t context);
static inline struct arch_opened arch_record(const struct arch_test *t, struct gguf_build *g)
{
    return arch_record_for(t, g, 0);
}
void arch_close(struct arch_opened *r);
const struct tape_op *arch_op(const struct tape_program *p, const char *value); /* the one that makes this value */
const char *arch_weight(const struct tape_program *p, const char *value);       /* its tensors' names */
const char *arch_bias(const struct tape_program *p, const char *value);
void arch_near(double x, double expected); /* to a millionth */

/* ---- hostile files: refused with a text, or recorded into a program that passes the checker ---- */

/* Records; *accepted: keys that may be there unread, or NULL. The text of a refusal is arch_text. */
wk_status arch_attempt(const struct arch_test *t, struct gguf_build *g, struct gguf_accepted *accepted);
extern char arch_text[8192];
void arch_must_refuse(const struct arch_test *t, struct gguf_build *g, const char *about);
/* The file with this word as rope.scaling.type, of an architecture that serves "none" alone. */
void arch_rope_scaling(const struct arch_test *t, uint32_t file, const char *word);

/* What every plugin passes, as rows of a group of cmocka's; test: a struct arch_test. */
#define ARCH_EVERY_PLUGIN(test)                                                      \
    ARCH_UNIT_TEST(arch_every_key, test), ARCH_UNIT_TEST(arch_converter_keys, test), \
        ARCH_UNIT_TEST(arch_architectures, test), ARCH_UNIT_TEST(arch_every_tensor, test)
#define ARCH_UNIT_TEST(function, test) cmocka_unit_test_prestate(function, (void *)&(test))
/* Every key of the table, in every file: absent, at and beyond its bounds, NaN, of other types, arrays. */
void arch_every_key(void **state);
/* Every key of the ecosystem's converter is read, changes nothing, or refuses the file by name. */
void arch_converter_keys(void **state);
/* Another architecture's name, or none, in file 0. */
void arch_architectures(void **state);
/* Every tensor of every file: missing, transposed, one more of each dimension, of a type nobody serves, cut off. */
void arch_every_tensor(void **state);

/* Arrays with an element for each layer: the file has T_G heads of k and v. */
void arch_arrays(const struct arch_test *t, uint32_t file);

struct arch_relation { /* numbers that are right alone and wrong together */
    uint32_t file;
    struct arch_key key;
    const char *about; /* what the refusal says */
};
void arch_relations(const struct arch_test *t, const struct arch_relation *rows, size_t n);

struct arch_surplus {
    uint32_t file;
    const char *tensor;
};
/* A tensor that nothing reads refuses the file by its name. */
void arch_surplus_tensors(const struct arch_test *t, const struct arch_surplus *rows, size_t n);

/* Of a plugin that leaves out layers which predict further tokens: with two more layers of any tensors, of which
 * nextn_predict_layers tells, the file is recorded as without them; else they refuse it by name. */
void arch_nextn(const struct arch_test *t, uint32_t file);

#endif
