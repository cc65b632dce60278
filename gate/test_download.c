/* test_download.c: answers that are given up, also while the process that connects out has only just been started: what
 * was not read of it does not become the next answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "download.h"

static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\npages";

/* Answers one request after another, until its socket is shut down. */
static void *serve(void *arg)
{
    const int listener = *(const int *)arg;
    for (int one; (one = accept(listener, NULL, NULL)) >= 0;) {
        char bytes[4096];
        if (recv(one, bytes, sizeof bytes, 0) > 0) (void)send(one, answer, sizeof answer - 1, MSG_NOSIGNAL);
        (void)close(one);
    }
    return NULL;
}

static int listen_there(char url[64])
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof at;
    const int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(s >= 0);
    assert_int_equal(bind(s, (struct sockaddr *)&at, n), 0);
    assert_int_equal(listen(s, 16), 0);
    assert_int_equal(getsockname(s, (struct sockaddr *)&at, &n), 0);
    (void)snprintf(url, 64, "http://127.0.0.1:%u/", ntohs(at.sin_port));
    return s;
}

static bool always(void *user)
{
    (void)user;
    return true;
}

static void given_up(void **state)
{
    (void)state;
    char url[64], text[256] = "";
    const char *header, *bytes;
    uint32_t status = 0;
    size_t n = 0;
    struct download *d;
    pthread_t thread;
    int listener = listen_there(url);
    const struct wk_err err = { text, sizeof text };
    const struct fetch_request request = { .method = "GET", .url = url, .timeout_ms = 20000 };
    assert_int_equal(pthread_create(&thread, NULL, serve, &listener), 0);
    if (download_open(NULL, &d, &err)) fail_msg("%s", text);
    for (int i = 0; i < 3; i++) { /* before its answer, then before the first word of the process that takes over */
        download_watch(d, always, NULL);
        assert_int_equal(download_begin(d, &request, &status, &header, &err), WK_CANCELLED);
        assert_int_equal(download_begin(d, &request, &status, &header, &err), WK_CANCELLED);
        download_watch(d, NULL, NULL);
        if (download_begin(d, &request, &status, &header, &err)) fail_msg("%s", text);
        assert_int_equal(status, 200);
        assert_int_equal(download_next(d, &bytes, &n, &err), WK_OK);
        assert_int_equal(n, 5);
        assert_memory_equal(bytes, "pages", 5);
        assert_int_equal(download_next(d, &bytes, &n, &err), WK_OK);
        assert_int_equal(n, 0);
    }
    download_close(d);
    (void)shutdown(listener, SHUT_RDWR);
    (void)pthread_join(thread, NULL);
    (void)close(listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(given_up) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
