/* cli.h: runs the built program as a user would and looks at everything that comes out of it. */
#ifndef TESTS_CLI_CLI_H
#define TESTS_CLI_CLI_H

#include <stdarg.h>
#include <stdbool.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { CLI_MAX_ARGS = 24 };

struct cli_result {
    int status;      /* exit status; -1: ended by a signal */
    char *out, *err; /* terminated; freed by cli_free */
    size_t out_len;
};

/* What is run: the program in the build tree, unless a test installs a copy. */
extern const char *cli_program;
/* Copies the program to ./prefix/bin/worker and makes the folders ./prefix/lib/worker, without a module in them; path:
 * where that belongs. */
void cli_install(char module[256]);

/* Runs worker with a NULL-terminated list of arguments; input NULL: standard input is empty. A sanitizer's report or a
 * signal fails the test. */
struct cli_result cli(const char *const *args, const char *input);
#define CLI(...) cli((const char *const[]){ __VA_ARGS__, NULL }, NULL)
void cli_free(struct cli_result *r);

/* Runs it until the first byte of output, interrupts it, and collects the rest. */
struct cli_result cli_interrupt(const char *const *args);

/* Runs it with a terminal for its standard output; skips the test where there are none to be had. */
struct cli_result cli_terminal(const char *const *args);

bool matches(const char *text, const char *pattern); /* extended regular expression */
const char *last_line(char *text);                   /* cuts the final newline off */
unsigned files_here(void);                           /* entries of the working directory */

/* A new empty working directory for one test program, removed at the end; setup and teardown of cmocka groups. */
int enter_scratch(void **state);
int leave_scratch(void **state);

#endif
