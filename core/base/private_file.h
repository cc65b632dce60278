/* base/private_file.h: whether a file with a secret is closed to all who need not read it. */
#ifndef CORE_BASE_PRIVATE_FILE_H
#define CORE_BASE_PRIVATE_FILE_H

#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file of our own: only its owner may use it. A file of another user (a service manager and Kubernetes give us
 * root's): its group may read it, too, since that may be how we can. */
static inline bool file_is_private(const struct stat *s)
{
    const mode_t others = s->st_uid == geteuid() ? 077 : 037;
    return !(s->st_mode & others);
}

#endif
