/* keys.c: which keys below "tokenizer." are known here. A key that nobody reads may say that this is another tokenizer
 * than the one that is made of the file, so it refuses the file.
 *
 * The table has the keys that the converter of llama.cpp knows (package gguf 0.19.0, constants.py), and those that
 * ollama's writes besides. */
#include <string.h>

#include "gguf/gguf.h"
#include "tokenizer/tokenizer.h"

/* How a key is known. The flags change what a text becomes; with their other value they are not served, or of one
 * model alone. */
enum use { READ, CHANGES_NOTHING, ALWAYS_FALSE, FALSE_BUT_OF_BERT, FALSE_BUT_OF_T5, OF_T5 };

static const struct {
    const char *name; /* below "tokenizer."; ending in '*': all that begin so */
    enum use use;
} table[] = {
    { "ggml.model", READ },
    { "ggml.pre", READ },
    { "ggml.tokens", READ },
    { "ggml.token_type", READ },
    { "ggml.scores", READ },
    { "ggml.merges", READ },
    { "ggml.bos_token_id", READ },
    { "ggml.eos_token_id", READ },
    { "ggml.eos_token_ids", READ },
    { "ggml.eot_token_id", READ },
    { "ggml.eom_token_id", READ },
    { "ggml.unknown_token_id", READ },
    { "ggml.padding_token_id", READ },
    { "ggml.add_bos_token", READ },
    { "ggml.add_eos_token", READ },
    { "ggml.add_space_prefix", READ },
    { "ggml.add_sep_token", READ },
    { "ggml.seperator_token_id", READ }, /* as converters spell it */
    { "ggml.separator_token_id", READ },
    { "ggml.cls_token_id", READ },
    { "chat_template", READ },
    /* Templates besides the one that is used; the same vocabulary once more; ids that a text's author writes or a
     * model of another kind needs. */
    { "chat_template.*", CHANGES_NOTHING },
    { "chat_templates", CHANGES_NOTHING },
    { "huggingface.json", CHANGES_NOTHING },
    { "ggml.token_type_count", CHANGES_NOTHING },
    { "ggml.mask_token_id", CHANGES_NOTHING },
    { "ggml.prefix_token_id", CHANGES_NOTHING },
    { "ggml.suffix_token_id", CHANGES_NOTHING },
    { "ggml.middle_token_id", CHANGES_NOTHING },
    { "ggml.fim_pre_token_id", CHANGES_NOTHING },
    { "ggml.fim_suf_token_id", CHANGES_NOTHING },
    { "ggml.fim_mid_token_id", CHANGES_NOTHING },
    { "ggml.fim_pad_token_id", CHANGES_NOTHING },
    { "ggml.fim_rep_token_id", CHANGES_NOTHING },
    { "ggml.fim_sep_token_id", CHANGES_NOTHING },
    { "ggml.add_unknown_token", ALWAYS_FALSE },
    { "ggml.add_padding_token", ALWAYS_FALSE },
    { "ggml.remove_extra_whitespaces", FALSE_BUT_OF_T5 },
    { "ggml.precompiled_charsmap", OF_T5 },
    { "ggml.normalizer.lowercase", FALSE_BUT_OF_BERT },
};

static bool is_named(const char *name, const char *key, size_t len)
{
    const size_t n = strlen(name);
    if (n && name[n - 1] == '*') return len >= n - 1 && memcmp(key, name, n - 1) == 0;
    return len == n && memcmp(key, name, n) == 0;
}

/* Is it the model of the file's tokenizer? */
static bool is_model(const struct gguf *file, const char *name)
{
    const struct gguf_kv *kv = gguf_find(file, "tokenizer.ggml.model");
    struct gguf_str s;
    return kv && kv->type == GGUF_STRING && !gguf_str(file, kv, &s, NULL) && is_named(name, s.data, (size_t)s.len);
}

static wk_status check_key(const struct gguf *file, const struct gguf_kv *kv, struct gguf_accepted *accepted,
                           const struct wk_err *err)
{
    static const char prefix[] = "tokenizer.";
    const size_t len = sizeof prefix - 1;
    const int shown = kv->key.len < 100 ? (int)kv->key.len : 100;
    bool flag = false;
    if (kv->key.len <= len || memcmp(kv->key.data, prefix, len) != 0) return WK_OK;
    size_t i = 0;
    while (i < sizeof table / sizeof *table && !is_named(table[i].name, kv->key.data + len, kv->key.len - len)) i++;
    const bool t5 = is_model(file, "t5");
    if (i == sizeof table / sizeof *table || (table[i].use == OF_T5 && !t5)) {
        if (gguf_accepts(accepted, kv->key)) return WK_OK;
        return wk_fail(err, WK_UNSUPPORTED,
                       "%.*s: nothing reads this key, and it may change what a text becomes; --accept-key %.*s takes "
                       "the tokenizer without",
                       shown, kv->key.data, shown, kv->key.data);
    }
    const enum use use = table[i].use;
    if (use < ALWAYS_FALSE || (use == FALSE_BUT_OF_BERT && is_model(file, "bert")) || (use >= FALSE_BUT_OF_T5 && t5))
        return WK_OK;
    const wk_status status = gguf_bool(file, kv, &flag, err);
    if (status || !flag || gguf_accepts(accepted, kv->key)) return status;
    return wk_fail(err, WK_UNSUPPORTED,
                   "%.*s is true; false alone is served; --accept-key %.*s takes the tokenizer as if it were", shown,
                   kv->key.data, shown, kv->key.data);
}

wk_status tokenizer_check_keys(const struct gguf *file, struct gguf_accepted *accepted, const struct wk_err *err)
{
    wk_status status = WK_OK;
    for (uint64_t i = 0; !status && i < gguf_kv_count(file); i++)
        status = check_key(file, gguf_kv_at(file, i), accepted, err);
    return status;
}
