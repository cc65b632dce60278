/* test_machine.c: limits of control groups, in a folder that stands for a machine's "/". */
#include "base/machine.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char root[64];

static void make_parents(char *path)
{
    for (char *p = path + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        if (mkdir(path, 0755) != 0) assert_int_equal(errno, EEXIST);
        *p = '/';
    }
}

static void put(const char *path, const char *text)
{
    char full[512];
    (void)snprintf(full, sizeof full, "%s%s", root, path);
    make_parents(full);
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    assert_int_equal(fputs(text, f) >= 0, 1);
    assert_int_equal(fclose(f), 0);
}

static int empty(void)
{
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

static int start(void **state)
{
    (void)state;
    (void)snprintf(root, sizeof root, "/tmp/worker-machine-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    return empty();
}

static const char unified[] = "25 1 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";

static void test_quotas(void **state)
{
    (void)state;
    static const struct {
        uint32_t of;
        const char *limit;
        uint32_t left;
    } rows[] = {
        { 64, "max 100000\n", 64 },
        { 64, "200000 100000\n", 2 },
        { 64, "150000 100000", 2 },
        { 64, "1000 100000", 1 },
        { 2, "800000 100000", 2 },
        { 8, "18446744073709551615 1", 8 },
        { 8, "", 8 },
        { 8, "0 100000", 8 },
        { 8, "100000 0", 8 },
        { 8, "x", 8 },
        { 8, "100000", 8 },
        { 8, "-1 100000", 8 },
    };
    put("/proc/self/cgroup", "0::/\n");
    put("/proc/self/mountinfo", unified);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put("/sys/fs/cgroup/cpu.max", rows[i].limit);
        assert_int_equal(machine_processors_within(root, rows[i].of), rows[i].left);
    }
}

/* The smallest limit on the path counts, wherever it is; a sibling's does not. */
static void test_nested(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/a/b/c\n");
    put("/proc/self/mountinfo", unified);
    put("/sys/fs/cgroup/a/cpu.max", "300000 100000\n");
    put("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/a/b/c/cpu.max", "500000 100000\n");
    put("/sys/fs/cgroup/a/x/cpu.max", "100000 100000\n");
    put("/sys/fs/cgroup/a/memory.max", "5000\n");
    put("/sys/fs/cgroup/a/b/c/memory.max", "max\n");
    assert_int_equal(machine_processors_within(root, 16), 3);
    assert_int_equal(machine_processors_within(root, 2), 2);
    assert_int_equal(machine_memory_within(root, 1 << 20), 5000);
    assert_int_equal(machine_memory_within(root, 4000), 4000);
    put("/sys/fs/cgroup/a/b/cpu.max", "200000 100000\n");
    assert_int_equal(machine_processors_within(root, 16), 2);
    put("/sys/fs/cgroup/a/b/c/cpu.max", "100000 100000\n");
    assert_int_equal(machine_processors_within(root, 16), 1);
}

/* What the group uses is not available, but for pages of files, which it can have back. */
static void test_used(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/a\n");
    put("/proc/self/mountinfo", unified);
    put("/sys/fs/cgroup/a/memory.max", "10000\n");
    assert_int_equal(machine_memory_available_within(root, UINT64_MAX), 10000);
    put("/sys/fs/cgroup/a/memory.current", "7000\n");
    assert_int_equal(machine_memory_available_within(root, UINT64_MAX), 3000);
    put("/sys/fs/cgroup/a/memory.stat", "anon 100\nfile 6000\ninactive_file 2000\nactive_file 1000\nshmem 3000\n");
    assert_int_equal(machine_memory_available_within(root, UINT64_MAX), 6000);
    assert_int_equal(machine_memory_within(root, UINT64_MAX), 10000);
    put("/sys/fs/cgroup/a/memory.current", "20000\n");
    assert_int_equal(machine_memory_available_within(root, UINT64_MAX), 0);
}

static void test_version_1(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "5:memory:/m/n\n4:cpu,cpuacct:/c/d\n3:cpuset:/c/d\n0::/\n");
    put("/proc/self/mountinfo", "30 1 0:20 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
                                "31 1 0:21 / /groups\\040of/memory rw shared:3 - cgroup cgroup rw,memory\n"
                                "32 1 0:23 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n");
    put("/sys/fs/cgroup/cpu,cpuacct/c/d/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu,cpuacct/c/d/cpu.cfs_period_us", "100000\n");
    assert_int_equal(machine_processors_within(root, 16), 16);
    put("/sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us", "250000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_period_us", "100000\n");
    assert_int_equal(machine_processors_within(root, 16), 3);
    put("/groups of/memory/m/n/memory.limit_in_bytes", "9223372036854771712\n");
    assert_int_equal(machine_memory_within(root, 1 << 20), 1 << 20);
    put("/groups of/memory/m/memory.limit_in_bytes", "9000\n");
    put("/groups of/memory/m/memory.usage_in_bytes", "5000\n");
    put("/groups of/memory/m/memory.stat", "total_inactive_file 1000\ntotal_active_file 500\ninactive_file 9\n");
    assert_int_equal(machine_memory_within(root, 1 << 20), 9000);
    assert_int_equal(machine_memory_available_within(root, 1 << 20), 5500);
}

/* A container that sees its own group as the root of the mount, by the group's name outside; and one whose name leads
 * out of what it sees. */
static void test_container(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "4:cpu:/pod/box/job\n0::/../other\n");
    put("/proc/self/mountinfo", "30 1 0:20 /pod/box /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
                                "31 1 0:21 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "700000\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    assert_int_equal(machine_processors_within(root, 16), 7);
    put("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "200000\n");
    put("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
    assert_int_equal(machine_processors_within(root, 16), 2);
    put("/sys/fs/cgroup/unified/memory.max", "4096\n");
    assert_int_equal(machine_memory_within(root, 1 << 20), 4096);
}

/* Files that a container's runtime mounted over the usual place, which mountinfo tells nothing about. */
static void test_usual_places(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "1:cpu:/\n2:memory:/\n0::/\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "8192\n");
    assert_int_equal(machine_processors_within(root, 16), 1);
    assert_int_equal(machine_memory_within(root, 1 << 20), 8192);
    put("/sys/fs/cgroup/memory.max", "4096\n");
    assert_int_equal(machine_memory_within(root, 1 << 20), 4096);
}

static void test_no_groups(void **state)
{
    (void)state;
    assert_int_equal(machine_processors_within(root, 16), 16);
    assert_int_equal(machine_memory_within(root, 1 << 20), 1 << 20);
    put("/proc/self/cgroup", "nothing\n:\n0\n0:\n7::\n0::/a\n");
    put("/proc/self/mountinfo", "x\n - \n1 2 3 4\n1 2 3 / /y rw - cgroup2\n1 2 3 / /sys/fs/cgroup rw - cgroup2 x rw\n");
    assert_int_equal(machine_processors_within(root, 16), 16);
    assert_true(machine_processors() >= 1);
    assert_true(machine_memory() > 0);
    assert_true(machine_memory_available() > 0);
    assert_true(machine_memory_available() <= machine_memory());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_quotas, start, end),
        cmocka_unit_test_setup_teardown(test_nested, start, end),
        cmocka_unit_test_setup_teardown(test_used, start, end),
        cmocka_unit_test_setup_teardown(test_version_1, start, end),
        cmocka_unit_test_setup_teardown(test_container, start, end),
        cmocka_unit_test_setup_teardown(test_usual_places, start, end),
        cmocka_unit_test_setup_teardown(test_no_groups, start, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
