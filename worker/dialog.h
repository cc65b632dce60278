/* dialog.h: the conversation of `worker chat`: its messages and tools in OpenAI's form, as a worker takes them and as
 * files hold them. Functions that return an int have already said what is wrong when it is not EXIT_DONE, and then
 * nothing has changed. [main thread] */
#ifndef WORKER_DIALOG_H
#define WORKER_DIALOG_H

#include <stdbool.h>

#include <jansson.h>

struct dialog {
    json_t *messages; /* a list */
    json_t *tools;    /* a list; NULL: none */
};

int dialog_open(struct dialog *d);
void dialog_close(struct dialog *d);

/* text NULL: none from now on. What was said stays. */
int dialog_system(struct dialog *d, const char *text);
/* The list of functions that a file holds; path NULL: none from now on. */
int dialog_tools(struct dialog *d, const char *path);
/* Adds what the user says, or the result of a call. */
int dialog_user(struct dialog *d, const char *text);
int dialog_result(struct dialog *d, const char *call_id, const char *text);
/* Adds an answer, which is taken over. */
int dialog_answer(struct dialog *d, json_t *message);
/* Takes the last n messages back, or as many as there are. */
void dialog_take_back(struct dialog *d, size_t n);
/* Forgets all but the system prompt and the tools. */
void dialog_clear(struct dialog *d);

/* {"messages": [...], "tools": [...]}: what a request to /v1/chat/completions has. The file is its owner's alone. */
int dialog_save(const struct dialog *d, const char *path);
/* The same, or a list of messages; takes the place of all that was said. */
int dialog_load(struct dialog *d, const char *path);

#endif
