/* model_facts.c: see model_facts.h. */
#include "serve/model_facts.h"

#include <string.h>

#include "capability/capability.h"
#include "tape/tape.h"

struct model_facts model_facts_of(const struct model *m)
{
    const struct tape_program *p = m->program;
    struct model_facts f = { .tokenizer = m->tokenizer,
                             .file = m->file,
                             .program = p,
                             .architecture = p->architecture,
                             .identity = m->identity,
                             .n_vocab = p->n_vocab,
                             .context = m->dev.context,
                             .trained_context = capabilities_context(p),
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
