/* builtin.c: chat forms for files without a template (caps.h). A family shows in its special tokens; Llama-2, which has
 * none of its own, in the model's name. The forms are the published ones, written as templates of our own, so that one
 * path renders all conversations. */
#include <string.h>

#include "chat/caps.h"

static const char chatml[] = "{% for m in messages %}"
                             "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
                             "{% endfor %}"
                             "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

static const char llama3[] =
    "{{ bos_token }}{% for m in messages %}"
    "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content + '<|eot_id|>' }}"
    "{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}";

static const char phi3[] = "{{ bos_token }}{% for m in messages %}"
                           "{{ '<|' + m.role + '|>\\n' + m.content + '<|end|>\\n' }}"
                           "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}";

#define TAKE_SYSTEM                                                                                      \
    "{% set given = messages[0].role == 'system' %}{% set rest = messages[1:] if given else messages %}" \
    "{% for m in rest %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"                           \
    "{{ raise_exception('user and assistant take turns, the user begins') }}{% endif %}"

static const char gemma[] =
    "{{ bos_token }}" TAKE_SYSTEM "{{ '<start_of_turn>' + ('user' if m.role == 'user' else 'model') + '\\n' }}"
    "{{ messages[0].content + '\\n\\n' if given and loop.first }}"
    "{{ m.content + '<end_of_turn>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}";

static const char llama2[] = TAKE_SYSTEM "{% if m.role == 'user' %}{{ bos_token + '[INST] ' }}"
                                         "{{ '<<SYS>>\\n' + messages[0].content + '\\n<</SYS>>\\n\\n' if given and "
                                         "loop.first }}{{ m.content + ' [/INST]' }}"
                                         "{% else %}{{ ' ' + m.content + ' ' + eos_token }}{% endif %}{% endfor %}";

static bool has(const struct tokenizer *t, const char *a, const char *b)
{
    const uint32_t ids[2] = { tokenizer_find(t, a, strlen(a)), tokenizer_find(t, b, strlen(b)) };
    for (int i = 0; i < 2; i++)
        if (ids[i] == TOKEN_NONE || tokenizer_type(t, ids[i]) == TOKEN_NORMAL) return false;
    return true;
}

static bool is_llama2(const struct tokenizer *t, const char *name)
{
    const bool named = name && (strcasestr(name, "llama-2") || strcasestr(name, "llama 2") ||
                                strcasestr(name, "llama v2") || strcasestr(name, "llama2"));
    const bool byte_fallback = tokenizer_type(t, tokenizer_find(t, "<0x0A>", 6)) ==
                               TOKEN_BYTE; /* SentencePiece's, wherever it was read from */
    return named && byte_fallback;
}

const char *chat_builtin(const struct tokenizer *t, const char *general_name, const char **name)
{
    static const struct {
        const char *name, *one, *other, *text;
    } families[] = { { "harmony", "<|channel|>", "<|message|>", "" },
                     { "chatml", "<|im_start|>", "<|im_end|>", chatml },
                     { "llama-3", "<|start_header_id|>", "<|eot_id|>", llama3 },
                     { "gemma", "<start_of_turn>", "<end_of_turn>", gemma },
                     { "phi-3", "<|user|>", "<|end|>", phi3 } };
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (has(t, families[i].one, families[i].other)) {
            *name = families[i].name;
            return families[i].text;
        }
    if (!is_llama2(t, general_name)) return NULL;
    *name = "llama-2";
    return llama2;
}
