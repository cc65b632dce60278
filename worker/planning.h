/* planning.h: what a model would take on a device, and whether it fits: for `worker plan`, which says it of one file,
 * and `worker list`, which says it of many. [main thread] */
#ifndef WORKER_PLANNING_H
#define WORKER_PLANNING_H

#include "capabilities.h"
#include "setup.h"

struct planning {
    const char *path;   /* what messages call the file */
    const char *device; /* its name */
    uint32_t max_sequences;
    struct device_info gpu; /* --device cuda */
    bool gpu_missing;       /* why_gpu says why: the plan is made, what is available is not known */
    uint64_t available;     /* 0: not known */
    char why_gpu[512];
    /* Of a file: */
    struct model *model; /* NULL: it cannot be planned */
    wk_status status;    /* of model_plan; why says what it said */
    char why[4096];
    bool fits;
    struct missing missing;
};

/* Finds --device and what it has. A plan for a GPU needs none; where there is one, what it has free is known, too. */
int planning_device(const struct options *o, const struct device_ops **device, struct planning *p);
/* Plans a file, which becomes the plan's, also on failure. planning_drop afterwards, in either case. */
void planning_file(const struct options *o, const struct device_ops *device, const struct plugin_registry *plugins,
                   struct gguf *file, struct planning *p);
void planning_drop(struct planning *p);

#endif
