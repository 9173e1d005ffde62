/* Calls the exported kernels the ways a C program can, and checks what they compute. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels.h"

enum { N = 80, L = 17, M = 32, CALLERS = 4, CALLS = 50 };

#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                       \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

static float a[N * L], b[L * M], c[N * M], expected[N * M], expected_soft[N * M];

static void reference(void) {
    for (int i = 0; i < N * L; i++) a[i] = (float)(i % 7 - 3);
    for (int i = 0; i < L * M; i++) b[i] = (float)(i % 5 - 2) / 4;
    for (int i = 0; i < N * M; i++) c[i] = (float)(i % 3);
    for (int i = 0; i < N; i++) {
        double high = -1e30, sum = 0;
        for (int j = 0; j < M; j++) {
            double x = c[i * M + j];
            for (int k = 0; k < L; k++) x += (double)a[i * L + k] * b[k * M + j];
            expected[i * M + j] = (float)x;
            if (x > high) high = x;
        }
        for (int j = 0; j < M; j++) sum += exp(expected[i * M + j] - high);
        for (int j = 0; j < M; j++)
            expected_soft[i * M + j] = (float)(exp(expected[i * M + j] - high) / sum);
    }
}

static int close_to(const float *found, const float *wanted) {
    for (int i = 0; i < N * M; i++)
        if (!(fabsf(found[i] - wanted[i]) <= 1e-5f + 1e-5f * fabsf(wanted[i]))) return 0;
    return 1;
}

static void compute(int threads, void *space, void *soft_space, void *blur_space) {
    float out[N * M], soft[N * M], twice[N * M];
    memset(out, 255, sizeof out);
    memset(soft, 255, sizeof soft);
    memset(twice, 255, sizeof twice);
    CHECK(my_matmul(a, b, c, out, space, threads) == 0);
    CHECK(close_to(out, expected));
    CHECK(my_softmax(out, soft, soft_space, threads) == 0);
    CHECK(close_to(soft, expected_soft));
    CHECK(my_kernels(out, twice, blur_space, threads) == 0);
    for (int i = 0; i < N * M; i++) CHECK(twice[i] == (out[i] + 1) * (out[i] + 1) * 2);
}

static void *caller(void *unused) {
    for (int n = 0; n < CALLS; n++) compute(1 + n % 4, NULL, NULL, NULL);
    return unused;
}

static void errors(void) {
    static float out[N * M];
    CHECK(my_matmul(NULL, b, c, out, NULL, 1) == EINVAL);
    CHECK(my_matmul(a, b, c, NULL, NULL, 1) == EINVAL);
    CHECK(my_matmul((const float *)((const char *)a + 1), b, c, out, NULL, 1) == EINVAL);
    CHECK(my_matmul(a, b, c, out, NULL, -1) == EINVAL);
    CHECK(my_matmul(a, b, c, out, NULL, 257) == EINVAL);
    CHECK(my_softmax(c, out, (char *)NULL + 8, 1) == EINVAL);
    for (int i = 0; i < N * M; i++) CHECK(out[i] == 0);
}

int main(void) {
    reference();
    errors();
    for (int threads = 0; threads <= 8; threads++) compute(threads, NULL, NULL, NULL);

    CHECK(my_softmax_workspace_bytes(1) > 0);
    CHECK(my_kernels_workspace_bytes(4) > my_kernels_workspace_bytes(1));
    CHECK(my_kernels_workspace_bytes(0) == my_kernels_workspace_bytes(THREADS));
    for (int threads = 1; threads <= 4; threads++) {
        size_t soft = my_softmax_workspace_bytes(threads);
        size_t own = my_kernels_workspace_bytes(threads);
        CHECK(soft % 64 == 0 && own % 64 == 0);
        char *soft_space = aligned_alloc(64, soft + 64), *own_space = aligned_alloc(64, own + 64);
        memset(soft_space, 90, soft + 64);
        memset(own_space, 91, own + 64);
        compute(threads, NULL, soft_space, own_space);
        for (int i = 0; i < 64; i++) CHECK(soft_space[soft + i] == 90 && own_space[own + i] == 91);
        free(soft_space);
        free(own_space);
    }

    pthread_t callers[CALLERS];
    for (int i = 0; i < CALLERS; i++) CHECK(!pthread_create(&callers[i], NULL, caller, NULL));
    for (int i = 0; i < CALLERS; i++) CHECK(!pthread_join(callers[i], NULL));

    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        for (int threads = 1; threads <= 4; threads++) compute(threads, NULL, NULL, NULL);
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    puts("all right");
    return 0;
}
