/* catalog.h: the model files that this machine has, where each program keeps its own, and which of them a name means.
 *
 * Three places are looked at, in this order: the model folder, where `worker pull` puts what it fetches; the store of
 * Ollama; the cache of the hub's own library. The last two are read where they lie and never written to. A name means a
 * model of the first place that has one of that name; two of one place are an error. What names a file by a path is no
 * name and no business of this. [any thread] */
#ifndef HUB_CATALOG_H
#define HUB_CATALOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

enum catalog_place { CATALOG_FOLDER = 0, CATALOG_OLLAMA, CATALOG_HUB, CATALOG_PLACES };
enum { CATALOG_MOST = 4096 /* models that are listed */ };

struct catalog_entry {
    enum catalog_place place;
    char *name;     /* as --model takes it */
    char *path;     /* of its only or first file; NULL: it is not there, and why says so */
    char *why;      /* NULL: the file is there */
    uint64_t bytes; /* of all of its files */
    uint32_t files;
};

struct catalog {
    char *folder[CATALOG_PLACES]; /* where each place is, there or not; NULL: no environment variable says where */
    struct catalog_entry *entries;
    size_t n;
    size_t seen; /* entries of folders that were looked at */
    bool cut;    /* there are more than were looked at */
};

const char *catalog_place_name(enum catalog_place place); /* "folder", "ollama", "hub" */
/* The model folder: `given`, else $XDG_DATA_HOME/worker/models, else ~/.local/share/worker/models. The caller's; NULL:
 * out of memory, or none of them is known. */
char *catalog_folder(const char *given);

/* Lists what the three places hold, in the order of places and then of names. model_dir: of catalog_folder's `given`;
 * NULL: none. What is not there holds nothing. catalog_close afterwards, in either case. */
wk_status catalog_open(const char *model_dir, struct catalog *out, const struct wk_err *err);
void catalog_close(struct catalog *c);

/* Is it a path of a file, and so no name? With a / or ending in .gguf, but not with hf: or ollama: in front. */
bool catalog_is_path(const char *text);
/* The model that a name means: as listed; the name of its file without .gguf and without a split's numbers;
 * hf:ORG/NAME and hf:ORG/NAME:QUANT where they mean one; MODEL for MODEL:latest, with or without ollama: in front.
 * WK_INVALID: none or several: the text says where was looked and what is there. *out is the catalog's. */
wk_status catalog_find(const struct catalog *c, const char *name, const struct catalog_entry **out,
                       const struct wk_err *err);

#endif
