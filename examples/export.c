/* Multiplies two matrices and takes the softmax of every row, with kernels made by export.py. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels.h"

enum { N = 64, L = 48, M = 32 };

static float a[N * L], b[L * M], c[N * M], p[N * M];

int main(void) {
    for (int i = 0; i < N * L; i++) a[i] = (float)(i % 7 - 3) / 4;
    for (int i = 0; i < L * M; i++) b[i] = (float)(i % 5 - 2) / 4;

    /* No workspace of our own (NULL), as many threads as the kernels were built for (0). */
    int status = matmul(a, b, c, NULL, 0);
    if (status == 0) status = softmax(c, p, NULL, 0);
    if (status != 0) {
        fprintf(stderr, "a kernel refused its arguments: %d\n", status);
        return 1;
    }

    double worst = 0;
    for (int i = 0; i < N; i++) {
        double row[M], sum = 0;
        for (int j = 0; j < M; j++) {
            double x = 0;
            for (int k = 0; k < L; k++) x += (double)a[i * L + k] * b[k * M + j];
            sum += row[j] = exp(x);
        }
        for (int j = 0; j < M; j++) worst = fmax(worst, fabs(p[i * M + j] - row[j] / sum));
    }
    printf("largest error: %.1e\n", worst);
    return worst < 1e-5 ? 0 : 1;
}
