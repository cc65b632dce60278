/* output_file.c: writes under a temporary name beside the destination, then renames. */
#include "output_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "errors.h"

int output_open(const char *path, struct output_file *out)
{
    *out = (struct output_file){ NULL, strdup(path), NULL };
    if (!out->path || asprintf(&out->temporary, "%s.tmp-%ld", path, (long)getpid()) < 0) {
        out->temporary = NULL;
        output_abandon(out);
        return fail(CODE_INSUFFICIENT_MEMORY, "%s: no memory for a name", path);
    }
    out->stream = fopen(out->temporary, "wbxe");
    if (out->stream) return EXIT_DONE;
    int result = fail(CODE_OUTPUT_FAILED, "%s: cannot be created: %s", path, strerror(errno));
    output_abandon(out);
    return result;
}

int output_finish(struct output_file *out)
{
    FILE *stream = out->stream;
    int result = EXIT_DONE;
    out->stream = NULL;
    const int broken = ferror(stream);
    if (fclose(stream) != 0 || broken || rename(out->temporary, out->path) != 0) {
        result = fail(CODE_OUTPUT_FAILED, "%s: cannot be written: %s", out->path, strerror(errno));
        (void)unlink(out->temporary);
    }
    output_abandon(out);
    return result;
}

void output_abandon(struct output_file *out)
{
    if (out->stream) {
        (void)fclose(out->stream);
        (void)unlink(out->temporary);
    }
    free(out->path);
    free(out->temporary);
    *out = (struct output_file){ NULL, NULL, NULL };
}
