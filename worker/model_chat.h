/* model_chat.h: chats with a model in this process, as the options ask for them: its template, and conversations as
 * ids. Functions that return an int have already said what is wrong when it is not EXIT_DONE. [main thread] */
#ifndef WORKER_MODEL_CHAT_H
#define WORKER_MODEL_CHAT_H

#include "chat/chat.h"
#include "model/model.h"
#include "options.h"
#include "text.h"

struct model_chat {
    struct chat *chat;          /* NULL: none was opened */
    struct harmony_ids harmony; /* of a chat in that format */
    struct text template;
}; /* zeroed: empty */

/* Has it a tokenizer? */
int model_chat_tokenizer(const struct model *m);
/* The template of --chat-template, or the file's. instead: what to do without one, for the message. model_chat_close in
 * either case. */
int model_chat_open(const struct options *o, const struct model *m, const char *instead, struct model_chat *out);
void model_chat_close(struct model_chat *c);
/* Refuses flags that only a model that reasons can be asked for. chat NULL: the prompt is sent as it is. */
int model_chat_reasoning(const struct options *o, const struct chat *chat);
/* The conversation as ids; of q, clock and effort are set here. prompt: chat_prompt_free, out: tokens_free, both in
 * either case. */
int model_chat_encode(const struct options *o, const struct model *m, const struct chat *chat, struct chat_request *q,
                      struct chat_prompt *prompt, struct tokens *out);
/* Does the model take these ids as a prompt? */
int model_chat_fits(const struct model *m, const struct tokens *ids);

#endif
