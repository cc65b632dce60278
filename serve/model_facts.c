/* model_facts.c: see model_facts.h. */
#include "serve/model_facts.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "capability/capability.h"
#include "tape/tape.h"

/* The label that says yes: the only one, or the one of two that is called so. */
static uint32_t find_positive(const struct model *m)
{
    char key[128];
    struct gguf_strings labels;
    struct gguf_str label;
    (void)snprintf(key, sizeof key, "%.60s.classifier.output_labels", m->program->architecture);
    const struct gguf_kv *kv = gguf_find(m->file, key);
    if (m->program->embedding_width == 1) return 0;
    if (m->program->embedding_width != 2 || !kv || kv->count != 2 || gguf_strings_begin(m->file, kv, &labels, NULL))
        return UINT32_MAX;
    for (uint32_t i = 0; i < 2 && gguf_strings_next(&labels, &label); i++)
        if (label.len == 3 && strncasecmp(label.data, "yes", 3) == 0) return i;
    return UINT32_MAX;
}

struct model_facts model_facts_of(const struct model *m)
{
    const struct tape_program *p = m->program;
    struct model_facts f = { .tokenizer = m->tokenizer,
                             .file = m->file,
                             .program = p,
                             .architecture = p->architecture,
                             .adapters = m->adapters,
                             .n_adapters = m->n_adapters,
                             .identity = m->identity,
                             .n_vocab = p->n_vocab,
                             .context = m->dev.context,
                             .trained_context = capabilities_context(p),
                             .width = p->embedding_width,
                             .ranks = model_ranks(m),
                             .positive = find_positive(m),
                             .attention_layers = p->n_kv_layers,
                             .total_bytes = m->plan.total,
                             .on_gpu = m->device->handle != NULL,
                             .device = m->device,
                             .executor = m->executor };
    uint64_t page_bytes = 0;
    memcpy(f.bytes, m->plan.bytes, sizeof f.bytes);
    for (uint32_t g = 0; g < p->n_groups; g++)
        if (!p->groups[g].state) page_bytes += m->plan.kv_page_bytes[g];
    f.position_bytes = page_bytes / KV_PAGE;
    return f;
}

struct shard_handle model_facts_handle(const struct model_facts *f)
{
    struct shard_handle h = { 0 };
    if (f->on_gpu) f->device->handle(f->executor, &h);
    return h;
}
