/* setup.h: opens what the subcommands share: plugins, files, models. Each function that returns an int has already said
 * what is wrong when it returns an exit status other than EXIT_DONE, and then its result is NULL. [main thread] */
#ifndef WORKER_SETUP_H
#define WORKER_SETUP_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "model/model.h"
#include "options.h"

/* The models that are part of the program. The first is what commands take that are given none. */
struct embedded_model {
    const char *name; /* "embedded:haiku" */
    const unsigned char *begin, *end;
};
const struct embedded_model *embedded_models(uint32_t *n);
bool embedded_named(const char *path); /* such a name, whether there is one or not: no file */

/* --log json, or a service whose standard error is no terminal: then everything on standard error is an event. */
bool log_is_json(const struct options *o);

/* --audit-key: the key of digests in events. */
int choose_audit_key(const struct options *o);

/* --plugin-digest: from now on no other plugin is mapped. */
int allow_plugins(const struct options *o);

int open_plugins(const struct options *o, struct plugin_registry **out);
/* --model, or the embedded model where `embedded` allows it. */
int open_model_file(const struct options *o, bool embedded, struct gguf **out);
/* The tokenizer that --model or --tokenizer names; the file may hold a vocabulary alone. */
int open_tokenizer(const struct options *o, struct tokenizer **out);
/* The path of a model's file: of a path itself, of an embedded model its name, of a name what hub/catalog.h finds. */
enum { MODEL_PATH = 4097 };
int find_model(const struct options *o, const char *name, char path[MODEL_PATH]);
/* A model by what find_model takes. */
int open_path(const struct options *o, const char *name, struct gguf **out);
/* A file, or an embedded model by its name; NULL: the first of these. */
wk_status open_named(const char *path, struct gguf **out, const struct wk_err *err);

enum {
    STEP_ROWS = 512,
    STEP_ROWS_GPU = 4096,
    /* prompt tokens of one step: of a processor, of a GPU; */ STEP_ROWS_BEST = 0 /* those of the device */
};

/* What a command needs of its model beyond the options. */
struct model_needs {
    uint32_t max_rows, max_logits_rows; /* of one step */
    uint32_t sequences;                 /* 0: one */
    uint32_t context;                   /* 0: --context */
    uint32_t text_context;              /* of a file that says texts become embeddings or scores; 0: context */
    const char *digest;                 /* NULL: --digest */
    uint32_t kv_sequences; /* 0: KV cache for all sequences at full length; else for so many of them, or as much as the
                              device has room for */
    uint64_t kv_bytes;     /* with kv_sequences: exactly so much; 0: as much as is useful and fits */
    bool hand_over;        /* pages pass to and from other workers */
    bool load;             /* false: planned only */
    bool identify;         /* with load: model.identity */
    const char *const *taps;
    uint32_t n_taps;
};
/* What a service of n sequences needs; rows: of a step, 0: those of the device. */
struct model_needs served_needs(uint32_t n, uint32_t rows);
/* The device that --device names. Of a GPU: its module. */
int find_device(const struct options *o, const struct device_ops **out);
/* Is the GPU there, and can it be used? Of the CPU: *out is empty. warm: what it needs begins to be made. */
int probe_device(const struct options *o, const struct device_ops *device, bool warm, struct device_info *out);
/* --isa, or the best that this processor has. Refuses what it has not. */
int choose_isa(const struct options *o, uint32_t *out);
void model_options_from(const struct options *o, const struct device_ops *device, const struct plugin_registry *plugins,
                        const struct model_needs *needs, struct model_options *out);
/* The adapters of --lora, as find_device has checked them; the list is the process's. */
const struct adapter_source *lora_adapters(const struct options *o, uint32_t *n);
/* The keys of --accept-key; the list is the process's. */
struct gguf_accepted accepted_keys(const struct options *o);
/* Fails with a status of the model's room. A message that does not begin with the file's name is given it: several
 * rooms can refuse a model, and not all of them know the name. */
int refuse_model(wk_status status, const char *path, const char *text);

/* A model, the plugins it rests on, and where it runs. */
struct opened {
    struct plugin_registry *plugins;
    struct model *model;
    struct device_info gpu;
    bool kv_given; /* the size of the KV cache was asked for */
};
/* "cpu (avx512, 8 threads, 8-bit activations)", "cuda (GPU 0, NVIDIA H200)". */
enum { DEVICE_TEXT = 160 };
const char *opened_device(const struct opened *x, char out[DEVICE_TEXT]);
/* The handle of the weights on a GPU, as far as it is known by now; NULL: there is none, or no memory. */
json_t *opened_handle(const struct opened *x, const char *path);
/* A shard's name: its model, device and index. */
void shard_id(const struct opened *x, const struct shard_handle *h, char out[128]);
/* Plans and, if needed, loads the model of an open file, which becomes the model's also on failure, on a device that
 * was found and probed. Of `out`, plugins and gpu are given; path: what messages call it. */
int open_model_on(const struct options *o, const struct device_ops *device, struct gguf *file, const char *path,
                  const struct model_needs *needs, struct opened *out);
/* Opens --model or the embedded model, plans it and, if needed, loads it. opened_close in either case. */
int open_model(const struct options *o, const struct model_needs *needs, struct opened *out);
void opened_close(struct opened *x);

/* Bytes of memory that the device can give: of the host without swapping and within the control group, 0: unknown; of a
 * GPU what is free on it, with a context made there. */
int device_available(const struct device_ops *device, const struct device_info *gpu, uint64_t *out);
double seconds_now(void); /* monotonic */

/* Ctrl-C: the first asks the command to stop, which it sees here; the second ends the process. */
void interrupts_catch(void);
/* From now on no Ctrl-C ends the process; each asks again. */
void interrupts_ask(void);
bool interrupted(void);
void interrupts_forget(void); /* what was asked so far is done */

#endif
