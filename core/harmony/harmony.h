/* harmony.h: the conversation format that gpt-oss models were trained on (openai/harmony): conversations as prompts,
 * and the model's ids as messages.
 *
 * A message is <|start|>{header}<|message|>{content}<|end|>; a header is a role, perhaps a channel (analysis:
 * reasoning, not for users; commentary: tool calls and what is said before them; final: the answer), a recipient
 * (to=functions.f) and a type of content. Only these control tokens are structure: whatever callers put into a
 * conversation is encoded as untrusted text, and what a model writes is told apart by ids, never by spelling. */
#ifndef CORE_HARMONY_HARMONY_H
#define CORE_HARMONY_HARMONY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

enum harmony_role { HARMONY_SYSTEM = 0, HARMONY_DEVELOPER, HARMONY_USER, HARMONY_ASSISTANT, HARMONY_TOOL };

/* ---- rendering ----------------------------------------------------------------------------------------- */

enum { HARMONY_MAX_SCHEMA = 64 << 10 };

/* The first message. Strings are the caller's; NULL: the default. */
struct harmony_system {
    const char *identity;         /* "You are ChatGPT, a large language model trained by OpenAI.", as in training */
    const char *knowledge_cutoff; /* "2024-06" */
    const char *date;             /* today, "2025-06-28"; NULL: not stated, so that ids do not depend on the clock */
    const char *effort;           /* "low", "medium", "high"; NULL: medium */
    const char *channels;         /* "analysis, commentary, final" */
    bool browser, python;         /* the built-in tools that it was trained with */
};

struct harmony_function {
    struct token_bytes name, description; /* description may be empty */
    struct token_bytes parameters;        /* a JSON Schema of at most HARMONY_MAX_SCHEMA bytes; data NULL: takes none */
};
/* What others call the system prompt, and the functions that the model may call as functions.NAME. */
struct harmony_developer {
    struct token_bytes instructions;
    const struct harmony_function *functions;
    uint32_t n_functions;
};

/* One message. Empty texts are absent. name, recipient, channel, content_type: letters, digits and _ . : - / alone. */
struct harmony_message {
    enum harmony_role role;  /* USER, ASSISTANT, TOOL; system and developer texts as they are too */
    struct token_bytes name; /* TOOL: "functions.f", needed */
    struct token_bytes recipient, channel, content_type; /* "functions.f", "assistant"; "final"; "json" */
    bool constrained;                                    /* content_type stands behind <|constrain|> */
    struct token_bytes content;
};

struct harmony_conversation {
    const struct harmony_system *system;       /* NULL: none */
    const struct harmony_developer *developer; /* NULL, or neither instructions nor functions: none */
    const struct harmony_message *messages;
    size_t n_messages;
    bool keep_analysis; /* also the reasoning behind answers that were given */
    bool answer;        /* ends with <|start|>assistant: the model is to go on */
};

/* parts: for tokenizer_encode_parts, with add_special as the file wants it (gpt-oss: nothing is added). They point into
 * text. */
struct harmony_prompt {
    struct tokenizer_part *parts;
    size_t n;
    struct byte_buffer text;
};

/* Every message of the past ends with <|end|>, a call of a tool with <|call|>, never with <|return|>. Reasoning is left
 * out once a final message has followed it, unless that is the last message; reasoning around a call of a tool stays
 * until then, since the model goes on thinking there. WK_INVALID: an effort, name or schema that is none. *out is freed
 * with harmony_prompt_free, on success only. */
wk_status harmony_render(const struct harmony_conversation *c, struct harmony_prompt *out, const struct wk_err *err);
void harmony_prompt_free(struct harmony_prompt *p);

/* A JSON Schema as the TypeScript type that the models know it by, appended to out. `what` is said in messages. */
wk_status harmony_schema(struct token_bytes schema, const char *what, struct byte_buffer *out,
                         const struct wk_err *err);

/* ---- parsing ------------------------------------------------------------------------------------------- */

struct harmony_ids {
    uint32_t start, end, message, channel, constrain, done /* <|return|> */, call;
};
/* False: the vocabulary has no such control tokens. */
bool harmony_find_ids(const struct tokenizer *t, struct harmony_ids *out);

enum harmony_channel {
    HARMONY_FINAL = 0 /* also a message that names none */,
    HARMONY_ANALYSIS,
    HARMONY_COMMENTARY,
    HARMONY_OTHER
};
enum { HARMONY_NAME = 128 /* bytes of a name, with the 0; what is longer is cut */, HARMONY_HEADER = 512 };

struct harmony_header {
    enum harmony_role role;
    enum harmony_channel channel;
    char channel_name[HARMONY_NAME], name[HARMONY_NAME] /* of a tool */, recipient[HARMONY_NAME],
        content_type[HARMONY_NAME]; /* "": absent */
    bool constrained;
};
/* Is it for the user to see: the answer, or what is said before a call of a tool? */
bool harmony_visible(const struct harmony_header *h);
/* Is it a call of a tool? Its content is the arguments, header.recipient the tool. */
bool harmony_calls(const struct harmony_header *h);

enum harmony_end {
    HARMONY_ENDED /* <|end|> */,
    HARMONY_DONE /* <|return|> */,
    HARMONY_CALLED /* <|call|> */,
    HARMONY_CUT /* by the next message or the end of the output */
};

/* What an id meant. BEGIN: parser->header is the message's from now to END. TEXT: bytes of its content, perhaps a part
 * of a character only. */
struct harmony_event {
    enum { HARMONY_BEGIN, HARMONY_TEXT, HARMONY_END } kind;
    struct token_bytes text;
    enum harmony_end end;
};

/* One output as it comes. Takes any ids in any order: models leave out tokens, repeat them and write headers of their
 * own; what cannot be a header is given out as text of a final message, and nothing is lost but control tokens.
 * Allocates nothing. [one thread] */
struct harmony_parser {
    struct harmony_ids ids;
    enum { HARMONY_BETWEEN, HARMONY_IN_HEADER, HARMONY_IN_CONTENT } state;
    bool role_known; /* the header that is being read belongs to the assistant, whatever it says */
    struct harmony_header header;
    char head[HARMONY_HEADER]; /* the header so far; \1 for <|channel|>, \2 for <|constrain|> */
    size_t n;
};

/* prompted: the prompt ended with <|start|>assistant, so that the output begins inside a header. */
void harmony_begin(struct harmony_parser *p, const struct harmony_ids *ids, bool prompted);
enum { HARMONY_EVENTS = 3 };
/* piece: the id's bytes (tokenizer_piece, control tokens not shown). Returns how many events; their texts are valid
 * until the next call. */
size_t harmony_push(struct harmony_parser *p, uint32_t id, struct token_bytes piece,
                    struct harmony_event out[HARMONY_EVENTS]);
/* Does it hold text back that may turn out to be no header? */
bool harmony_holds(const struct harmony_parser *p);
/* The output is over. */
size_t harmony_finish(struct harmony_parser *p, struct harmony_event out[HARMONY_EVENTS]);

#endif
