/* test_models.h: architectures recorded as their papers have them, at the size of a toy, with files to match; and an
 * independent checker of finished programs. Shared by the tests of the tape. */
#ifndef TESTS_SUPPORT_TEST_MODELS_H
#define TESTS_SUPPORT_TEST_MODELS_H

#include "gguf_build.h"
#include "tape/tape.h"

/* E: embedding, H heads of D, G of k and v, F feed-forward, V tokens, X experts of which K are used, L layers, C
 * positions. */
enum { T_E = 32, T_H = 4, T_G = 2, T_D = 8, T_F = 64, T_V = 48, T_X = 8, T_K = 2, T_L = 3, T_C = 128 };

struct test_model {
    const char *name;
    const struct wk_arch *arch;
    struct gguf_build *(*file)(void);
    uint32_t launches_a_layer;
};
extern const struct test_model test_models[];
extern const uint32_t n_test_models;

struct tape_options test_options(void); /* all fusions, no taps, the types of the test data but MXFP4 */

/* Records or ends the test with the text. */
struct tape_program *test_record(const struct wk_arch *arch, const struct gguf *file, const struct tape_options *o);

/* Every operation computed (once, prologue norms at least once), in an order that can run, from buffers that hold what
 * is read, for the rows that are needed. Ends the test otherwise. */
void test_check_program(const struct tape_program *p);

uint32_t test_launches_of_layer(const struct tape_program *p, uint32_t layer);

#endif
