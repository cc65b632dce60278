/* openai_answer.h: what /v1/chat/completions and /v1/completions answer: chunks of a stream, or one document.
 *
 * A choice is an answer of stream.h; its index is the prompt's number times n, and its number among that prompt's
 * answers. [the handler's thread] */
#ifndef SERVE_OPENAI_ANSWER_H
#define SERVE_OPENAI_ANSWER_H

#include "exchange.h"

extern const struct encoder openai_chat_stream, openai_chat_whole, openai_completion_stream, openai_completion_whole;

#endif
