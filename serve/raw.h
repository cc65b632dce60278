/* raw.h: pieces of a JSON document as the client wrote them, so that another document can be written of them in which
 * numbers keep their digits and objects the order of their members.
 *
 * For documents that body_parse has taken. Nothing is allocated but what the reader needs for escapes; memory of a
 * piece is the document's. Pure functions. [any thread] */
#ifndef SERVE_RAW_H
#define SERVE_RAW_H

#include "http/http.h"
#include "refusal.h"
#include "tokenizer/json_reader.h"

struct raw {
    const char *data; /* NULL: there is none */
    size_t n;
    enum jr_kind kind; /* JR_NOTHING: there is none */
};

/* The document itself. */
struct raw raw_of(const char *bytes, size_t n);
/* An object's member; a null, or what is no object, has none. The last one of a name counts. */
struct raw raw_member(struct raw object, const char *name);
/* The same, where the value must be of that kind. False: why says WHERE.NAME; absent is allowed, and *out then has no
 * data. where: "" or "messages[3]". */
bool raw_member_of(struct raw object, const char *where, const char *name, enum jr_kind kind, struct raw *out,
                   struct refusal *why);

/* The elements of a list, or the members of an object, in their order:
 * for (raw_open(&w, list); raw_next(&w, &value);) ...; raw_close(&w). What is neither has none. More levels than the
 * reader has, JR_MAX_DEPTH, and a lack of memory end it early: w.json.status. */
struct raw_walk {
    struct json_reader json;
    bool object;
    struct json_text key; /* of the value, an object's; valid until the next one */
};
void raw_open(struct raw_walk *w, struct raw of);
bool raw_next(struct raw_walk *w, struct raw *value);
void raw_close(struct raw_walk *w);

/* Is it a list or an object with nothing in it? */
bool raw_is_empty(struct raw value);
/* Is it a string that says `word`? */
bool raw_says(struct raw value, const char *word);
/* The string's text, without its escapes, is added to out; of what is no string nothing. */
void raw_text(struct raw string, struct http_text *out);
/* The piece as it is written is added to out; `otherwise` where there is none. */
void raw_copy(struct http_text *out, struct raw value, const char *otherwise);
/* The same for what is one line, as an event of a stream or a line of JSON is: ends of lines, which can stand between
 * two tokens alone, become spaces. */
void raw_copy_line(struct http_text *out, struct raw value, const char *otherwise);
/* ,"NAME":VALUE if there is one. */
void raw_copy_member(struct http_text *out, const char *name, struct raw value);

#endif
