// A cuSOLVER for the fake runtime: libcusolver.so with the functions of cuSOLVER 11 that
// lib/device/cuda opens at run time.
//
// All is computed late, in f64, and rounded once. Only queued work touches matrices, pivots, info
// and the device workspace; the host workspace is touched only during a call. Both workspaces are
// overwritten, and so is a matrix that no result replaces: of gesvd, and of syevd without vectors.
// `asked` has what ND_CUDART_CUSOLVER in the environment changes.
#include "tests/cudart/cusolver.h"
#include "tests/cudart/blas.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/// From 1000 on it is a status, plus 1000, that creating a handle answers.
enum asked {
    REFUSES = 100, ///< asking for the size of a workspace is not supported
    WANTS_MUCH,    ///< workspaces are larger than there is memory: as large as their type can say
    RUNS_NOT,      ///< running is not supported
    FAILS,         ///< running fails
    NOT_CONVERGED, ///< values come with an info of 3
    STATUS = 1000
};
enum { NOT_STARTED = 1, NO_MEMORY, BAD_VALUE, FAILED = 6, UNSUPPORTED = 9 };
enum { OF_HANDLE = 0x501, OF_PARAMS, HOST_BYTES = 64, GARBAGE = 0xEE };
enum { LOWER = 0, UPPER = 1, NO_VECTORS = 0, VECTORS = 1, PLAIN = 0, TRANSPOSE = 1 };

typedef struct handle {
    int magic;
    queue_function *queue;
    cudaStream_t stream;
} handle;
typedef struct params {
    int magic;
} params;

/// A call as it is queued; each uses a part of it. All matrices are column-major.
typedef struct work {
    int type;
    int mode; ///< the triangle that is read, or getrs' operation
    int jobz; ///< of syevd
    bool has_u, has_vt;
    bool converges; ///< unless NOT_CONVERGED was asked for
    int64_t m, n, k;
    void *a, *values, *u, *vt; ///< values: W, S or tau; u: or the right-hand sides, [n, k]
    int64_t lda, ldu, ldvt;
    int64_t *pivots;
    int *info;
    void *workspace; ///< on the device
    size_t bytes;
} work;

// --------------------------------------------------------------------------------- the queued work

static size_t size_of(int type) {
    return type == F64 ? sizeof(double) : sizeof(float);
}

static double element(int type, const void *matrix, int64_t index) {
    return type == F64 ? ((const double *)matrix)[index] : (double)((const float *)matrix)[index];
}

static void set_element(int type, void *matrix, int64_t index, double value) {
    if (type == F64)
        ((double *)matrix)[index] = value;
    else
        ((float *)matrix)[index] = (float)value;
}

/// A copy without gaps, which the caller frees.
static double *load(int type, const void *from, int64_t rows, int64_t columns, int64_t ld) {
    double *made = solver_matrix(rows, columns);
    for (int64_t j = 0; j < columns; j++)
        for (int64_t i = 0; i < rows; i++)
            made[i + j * rows] = element(type, from, i + j * ld);
    return made;
}

static void store(int type, void *to, int64_t rows, int64_t columns, int64_t ld, const double *x) {
    for (int64_t j = 0; j < columns; j++)
        for (int64_t i = 0; i < rows; i++)
            set_element(type, to, i + j * ld, x[i + j * rows]);
}

/// Where element i, j of the lower triangle lies: its mirror image, when the upper one is named.
static int64_t place(const work *w, int64_t i, int64_t j) {
    return w->mode == UPPER ? j + i * w->lda : i + j * w->lda;
}

/// The symmetric matrix of which one triangle is read.
static double *load_symmetric(const work *w) {
    double *made = solver_matrix(w->n, w->n);
    for (int64_t j = 0; j < w->n; j++)
        for (int64_t i = j; i < w->n; i++)
            made[i + j * w->n] = made[j + i * w->n] = element(w->type, w->a, place(w, i, j));
    return made;
}

static void spoil(const work *w, int64_t columns) {
    for (int64_t j = 0; w->m > 0 && j < columns; j++)
        memset((char *)w->a + (size_t)(j * w->lda) * size_of(w->type), GARBAGE,
               (size_t)w->m * size_of(w->type));
}

static void spoil_workspace(const work *w) {
    if (w->workspace)
        memset(w->workspace, GARBAGE, w->bytes);
}

static int64_t least(const work *w) {
    return w->m < w->n ? w->m : w->n;
}

static void potrf(void *data) {
    const work *w = data;
    spoil_workspace(w);
    double *a = load_symmetric(w);
    *w->info = solver_cholesky(a, w->n);
    for (int64_t j = 0; j < w->n; j++)
        for (int64_t i = j; i < w->n; i++)
            set_element(w->type, w->a, place(w, i, j), a[i + j * w->n]);
    free(a);
}

static void getrf(void *data) {
    const work *w = data;
    spoil_workspace(w);
    double *a = load(w->type, w->a, w->m, w->n, w->lda);
    *w->info = solver_lu(a, w->m, w->n, w->pivots);
    store(w->type, w->a, w->m, w->n, w->lda, a);
    free(a);
}

static void getrs(void *data) {
    const work *w = data;
    double *a = load(w->type, w->a, w->n, w->n, w->lda);
    double *b = load(w->type, w->u, w->n, w->k, w->ldu);
    solver_lu_solve(a, w->pivots, w->mode == TRANSPOSE, w->n, b, w->k);
    store(w->type, w->u, w->n, w->k, w->ldu, b);
    *w->info = 0;
    free(a);
    free(b);
}

static void geqrf(void *data) {
    const work *w = data;
    spoil_workspace(w);
    double *a = load(w->type, w->a, w->m, w->n, w->lda), *tau = solver_matrix(least(w), 1);
    solver_qr(a, w->m, w->n, tau);
    store(w->type, w->a, w->m, w->n, w->lda, a);
    store(w->type, w->values, least(w), 1, least(w), tau);
    *w->info = 0;
    free(a);
    free(tau);
}

static void orgqr(void *data) {
    const work *w = data;
    spoil_workspace(w);
    double *a = load(w->type, w->a, w->m, w->n, w->lda);
    double *tau = load(w->type, w->values, w->k, 1, w->k);
    solver_orthogonal(a, w->m, w->n, w->k, tau);
    store(w->type, w->a, w->m, w->n, w->lda, a);
    *w->info = 0;
    free(a);
    free(tau);
}

static void syevd(void *data) {
    const work *w = data;
    spoil_workspace(w);
    double *a = load_symmetric(w), *values = solver_matrix(w->n, 1);
    double *vectors = solver_matrix(w->n, w->n);
    const int info = solver_eigen(a, w->n, values, vectors);
    *w->info = w->converges ? info : 3;
    store(w->type, w->values, w->n, 1, w->n, values);
    if (w->jobz == VECTORS)
        store(w->type, w->a, w->n, w->n, w->lda, vectors);
    else
        spoil(w, w->n);
    free(a);
    free(values);
    free(vectors);
}

static void gesvd(void *data) {
    const work *w = data;
    spoil_workspace(w);
    double *a = load(w->type, w->a, w->m, w->n, w->lda), *s = solver_matrix(w->n, 1);
    double *v = solver_matrix(w->n, w->n);
    const int info = solver_svd(a, w->m, w->n, s, v);
    *w->info = w->converges ? info : 3;
    spoil(w, w->n);
    store(w->type, w->values, w->n, 1, w->n, s);
    if (w->has_u)
        store(w->type, w->u, w->m, w->n, w->ldu, a);
    for (int64_t j = 0; w->has_vt && j < w->n; j++)
        for (int64_t i = 0; i < w->n; i++)
            set_element(w->type, w->vt, i + j * w->ldvt, v[j + i * w->n]);
    free(a);
    free(s);
    free(v);
}

// ---------------------------------------------------------------------------- what all calls share

static enum asked asked(void) {
    return (enum asked)blas_asked("ND_CUDART_CUSOLVER");
}

static bool is_handle(const handle *of) {
    return of && of->magic == OF_HANDLE;
}

static bool are_ours(const handle *of, const params *with) {
    return is_handle(of) && with && with->magic == OF_PARAMS;
}

/// The numbers of a call are all of one type, which is known.
static bool is_type(int type, int other, int computed) {
    return (type == F32 || type == F64) && other == type && computed == type;
}

static bool is_matrix(const void *data, int64_t rows, int64_t columns, int64_t ld) {
    return rows >= 0 && columns >= 0 && ld >= (rows > 1 ? rows : 1) &&
           (data || rows == 0 || columns == 0);
}

static bool is_vector(const void *data, int64_t count) {
    return is_matrix(data, count, 1, count + 1);
}

/// What work with such sizes needs on the device, in bytes.
static size_t workspace_of(const work *w) {
    return asked() == WANTS_MUCH ? (size_t)1 << 50 : 256 + (size_t)(w->m + w->n) * sizeof(double);
}

/// The same of orgqr, in elements.
static int elements_of(const work *w) {
    return asked() == WANTS_MUCH ? INT_MAX : (int)(workspace_of(w) / sizeof(double));
}

/// Answers how large the workspaces must be.
static int tell_sizes(bool fits, const work *w, size_t *ret_device, size_t *ret_host) {
    if (!fits || !ret_device || !ret_host)
        return BAD_VALUE;
    if (asked() == REFUSES)
        return UNSUPPORTED;
    *ret_device = workspace_of(w);
    *ret_host = HOST_BYTES;
    return SUCCESS;
}

/// Whether workspaces are large enough. Notes that of the device, and overwrites that of the host.
static bool takes(work *w, void *device, size_t device_bytes, void *host, size_t host_bytes) {
    if (!device || device_bytes < workspace_of(w) || !host || host_bytes < HOST_BYTES)
        return false;
    w->workspace = device;
    w->bytes = device_bytes;
    memset(host, GARBAGE, host_bytes);
    return true;
}

static int run(handle *of, bool fits, const char *name, void (*function)(void *data), work *w) {
    if (!fits || !w->info)
        return BAD_VALUE;
    if (asked() == RUNS_NOT)
        return UNSUPPORTED;
    if (asked() == FAILS)
        return FAILED;
    w->converges = asked() != NOT_CONVERGED;
    return of->queue(of->stream, name, function, w, sizeof *w) == cudaSuccess ? SUCCESS : FAILED;
}

static void *writable(const void *data) {
    return (void *)(uintptr_t)data;
}

// --------------------------------------------------------------------------------------- the calls

EXPORT int cusolverDnCreate(handle **ret_made) {
    if (!ret_made)
        return BAD_VALUE;
    if (asked() > STATUS)
        return (int)asked() - STATUS;
    handle *made = calloc(1, sizeof *made);
    if (!made)
        return NO_MEMORY;
    *made = (handle){OF_HANDLE, blas_queue(), NULL};
    if (!made->queue) {
        free(made);
        return NOT_STARTED;
    }
    *ret_made = made;
    return SUCCESS;
}

EXPORT int cusolverDnSetStream(handle *to, cudaStream_t stream) {
    if (!is_handle(to))
        return BAD_VALUE;
    to->stream = stream;
    return SUCCESS;
}

EXPORT int cusolverDnCreateParams(params **ret_made) {
    if (!ret_made)
        return BAD_VALUE;
    params *made = calloc(1, sizeof *made);
    if (!made)
        return NO_MEMORY;
    made->magic = OF_PARAMS;
    *ret_made = made;
    return SUCCESS;
}

/// The work of one matrix.
static work work_on(int type, const void *a, int64_t m, int64_t n, int64_t lda) {
    return (work){.type = type, .m = m, .n = n, .a = writable(a), .lda = lda};
}

/// A square matrix of which a triangle is read.
static bool is_symmetric(const work *w, int uplo) {
    return (uplo == LOWER || uplo == UPPER) && is_matrix(w->a, w->n, w->n, w->lda);
}

EXPORT int cusolverDnXpotrf_bufferSize(handle *of, params *with, int uplo, int64_t n, int type,
                                       const void *a, int64_t lda, int computed, size_t *ret_device,
                                       size_t *ret_host) {
    const work w = work_on(type, a, n, n, lda);
    const bool fits = are_ours(of, with) && is_type(type, type, computed) && is_symmetric(&w, uplo);
    return tell_sizes(fits, &w, ret_device, ret_host);
}

EXPORT int cusolverDnXpotrf(handle *of, params *with, int uplo, int64_t n, int type, void *a,
                            int64_t lda, int computed, void *device, size_t device_bytes,
                            void *host, size_t host_bytes, int *ret_info) {
    work w = work_on(type, a, n, n, lda);
    w.mode = uplo;
    w.info = ret_info;
    const bool fits = are_ours(of, with) && is_type(type, type, computed) &&
                      is_symmetric(&w, uplo) && takes(&w, device, device_bytes, host, host_bytes);
    return run(of, fits, "cusolverDnXpotrf", potrf, &w);
}

EXPORT int cusolverDnXgetrf_bufferSize(handle *of, params *with, int64_t m, int64_t n, int type,
                                       const void *a, int64_t lda, int computed, size_t *ret_device,
                                       size_t *ret_host) {
    const work w = work_on(type, a, m, n, lda);
    const bool fits =
        are_ours(of, with) && is_type(type, type, computed) && is_matrix(a, m, n, lda);
    return tell_sizes(fits, &w, ret_device, ret_host);
}

EXPORT int cusolverDnXgetrf(handle *of, params *with, int64_t m, int64_t n, int type, void *a,
                            int64_t lda, int64_t *ret_pivots, int computed, void *device,
                            size_t device_bytes, void *host, size_t host_bytes, int *ret_info) {
    work w = work_on(type, a, m, n, lda);
    w.pivots = ret_pivots;
    w.info = ret_info;
    const bool fits = are_ours(of, with) && is_type(type, type, computed) &&
                      is_matrix(a, m, n, lda) && is_vector(ret_pivots, least(&w)) &&
                      takes(&w, device, device_bytes, host, host_bytes);
    return run(of, fits, "cusolverDnXgetrf", getrf, &w);
}

EXPORT int cusolverDnXgetrs(handle *of, params *with, int operation, int64_t n, int64_t columns,
                            int type, const void *a, int64_t lda, const int64_t *pivots, int type_b,
                            void *b, int64_t ldb, int *ret_info) {
    work w = work_on(type, a, n, n, lda);
    w.mode = operation;
    w.k = columns;
    w.u = b;
    w.ldu = ldb;
    w.pivots = writable(pivots);
    w.info = ret_info;
    const bool fits = are_ours(of, with) && is_type(type, type_b, type) &&
                      (operation == PLAIN || operation == TRANSPOSE) && is_matrix(a, n, n, lda) &&
                      is_vector(pivots, n) && is_matrix(b, n, columns, ldb);
    return run(of, fits, "cusolverDnXgetrs", getrs, &w);
}

EXPORT int cusolverDnXgeqrf_bufferSize(handle *of, params *with, int64_t m, int64_t n, int type,
                                       const void *a, int64_t lda, int type_tau, const void *tau,
                                       int computed, size_t *ret_device, size_t *ret_host) {
    const work w = work_on(type, a, m, n, lda);
    const bool fits = are_ours(of, with) && is_type(type, type_tau, computed) &&
                      is_matrix(a, m, n, lda) && is_vector(tau, least(&w));
    return tell_sizes(fits, &w, ret_device, ret_host);
}

EXPORT int cusolverDnXgeqrf(handle *of, params *with, int64_t m, int64_t n, int type, void *a,
                            int64_t lda, int type_tau, void *tau, int computed, void *device,
                            size_t device_bytes, void *host, size_t host_bytes, int *ret_info) {
    work w = work_on(type, a, m, n, lda);
    w.values = tau;
    w.info = ret_info;
    const bool fits = are_ours(of, with) && is_type(type, type_tau, computed) &&
                      is_matrix(a, m, n, lda) && is_vector(tau, least(&w)) &&
                      takes(&w, device, device_bytes, host, host_bytes);
    return run(of, fits, "cusolverDnXgeqrf", geqrf, &w);
}

static work work_of_orgqr(int type, int m, int n, int k, const void *a, int lda, const void *tau) {
    work w = work_on(type, a, m, n, lda);
    w.k = k;
    w.values = writable(tau);
    return w;
}

static bool fits_orgqr(const handle *of, const work *w) {
    return is_handle(of) && w->m >= w->n && w->n >= w->k && is_matrix(w->a, w->m, w->n, w->lda) &&
           is_vector(w->values, w->k);
}

static int tell_elements(const handle *of, const work *w, int *ret_elements) {
    if (!fits_orgqr(of, w) || !ret_elements)
        return BAD_VALUE;
    if (asked() == REFUSES)
        return UNSUPPORTED;
    *ret_elements = elements_of(w);
    return SUCCESS;
}

static int run_orgqr(handle *of, const char *name, work *w, void *workspace, int elements,
                     int *ret_info) {
    const bool fits = fits_orgqr(of, w) && workspace && elements >= elements_of(w);
    w->workspace = workspace;
    w->bytes = fits ? (size_t)elements * size_of(w->type) : 0;
    w->info = ret_info;
    return run(of, fits, name, orgqr, w);
}

EXPORT int cusolverDnSorgqr_bufferSize(handle *of, int m, int n, int k, const float *a, int lda,
                                       const float *tau, int *ret_elements) {
    const work w = work_of_orgqr(F32, m, n, k, a, lda, tau);
    return tell_elements(of, &w, ret_elements);
}

EXPORT int cusolverDnSorgqr(handle *of, int m, int n, int k, float *a, int lda, const float *tau,
                            float *workspace, int elements, int *ret_info) {
    work w = work_of_orgqr(F32, m, n, k, a, lda, tau);
    return run_orgqr(of, "cusolverDnSorgqr", &w, workspace, elements, ret_info);
}

EXPORT int cusolverDnDorgqr_bufferSize(handle *of, int m, int n, int k, const double *a, int lda,
                                       const double *tau, int *ret_elements) {
    const work w = work_of_orgqr(F64, m, n, k, a, lda, tau);
    return tell_elements(of, &w, ret_elements);
}

EXPORT int cusolverDnDorgqr(handle *of, int m, int n, int k, double *a, int lda, const double *tau,
                            double *workspace, int elements, int *ret_info) {
    work w = work_of_orgqr(F64, m, n, k, a, lda, tau);
    return run_orgqr(of, "cusolverDnDorgqr", &w, workspace, elements, ret_info);
}

static bool fits_syevd(const work *w, int jobz, int uplo) {
    return (jobz == NO_VECTORS || jobz == VECTORS) && is_symmetric(w, uplo) &&
           is_vector(w->values, w->n);
}

EXPORT int cusolverDnXsyevd_bufferSize(handle *of, params *with, int jobz, int uplo, int64_t n,
                                       int type, const void *a, int64_t lda, int type_w,
                                       const void *values, int computed, size_t *ret_device,
                                       size_t *ret_host) {
    work w = work_on(type, a, n, n, lda);
    w.values = writable(values);
    const bool fits =
        are_ours(of, with) && is_type(type, type_w, computed) && fits_syevd(&w, jobz, uplo);
    return tell_sizes(fits, &w, ret_device, ret_host);
}

EXPORT int cusolverDnXsyevd(handle *of, params *with, int jobz, int uplo, int64_t n, int type,
                            void *a, int64_t lda, int type_w, void *values, int computed,
                            void *device, size_t device_bytes, void *host, size_t host_bytes,
                            int *ret_info) {
    work w = work_on(type, a, n, n, lda);
    w.mode = uplo;
    w.jobz = jobz;
    w.values = values;
    w.info = ret_info;
    const bool fits = are_ours(of, with) && is_type(type, type_w, computed) &&
                      fits_syevd(&w, jobz, uplo) &&
                      takes(&w, device, device_bytes, host, host_bytes);
    return run(of, fits, "cusolverDnXsyevd", syevd, &w);
}

static bool is_job(signed char job) {
    return job == 'S' || job == 'N';
}

static work work_of_gesvd(const work *of_a, const void *s, const void *u, int64_t ldu,
                          const void *vt, int64_t ldvt) {
    work w = *of_a;
    w.values = writable(s);
    w.u = writable(u);
    w.ldu = ldu;
    w.vt = writable(vt);
    w.ldvt = ldvt;
    return w;
}

/// Notes the jobs too; what is not asked for may be anything.
static bool fits_gesvd(work *w, signed char jobu, signed char jobvt, int type_u, int type_vt) {
    w->has_u = jobu == 'S';
    w->has_vt = jobvt == 'S';
    return is_job(jobu) && is_job(jobvt) && is_type(w->type, type_u, type_vt) && w->m >= w->n &&
           is_matrix(w->a, w->m, w->n, w->lda) && is_vector(w->values, w->n) &&
           (!w->has_u || is_matrix(w->u, w->m, w->n, w->ldu)) &&
           (!w->has_vt || is_matrix(w->vt, w->n, w->n, w->ldvt));
}

EXPORT int cusolverDnXgesvd_bufferSize(handle *of, params *with, signed char jobu,
                                       signed char jobvt, int64_t m, int64_t n, int type,
                                       const void *a, int64_t lda, int type_s, const void *s,
                                       int type_u, const void *u, int64_t ldu, int type_vt,
                                       const void *vt, int64_t ldvt, int computed,
                                       size_t *ret_device, size_t *ret_host) {
    const work of_a = work_on(type, a, m, n, lda);
    work w = work_of_gesvd(&of_a, s, u, ldu, vt, ldvt);
    const bool fits = are_ours(of, with) && is_type(type, type_s, computed) &&
                      fits_gesvd(&w, jobu, jobvt, type_u, type_vt);
    return tell_sizes(fits, &w, ret_device, ret_host);
}

EXPORT int cusolverDnXgesvd(handle *of, params *with, signed char jobu, signed char jobvt,
                            int64_t m, int64_t n, int type, void *a, int64_t lda, int type_s,
                            void *s, int type_u, void *u, int64_t ldu, int type_vt, void *vt,
                            int64_t ldvt, int computed, void *device, size_t device_bytes,
                            void *host, size_t host_bytes, int *ret_info) {
    const work of_a = work_on(type, a, m, n, lda);
    work w = work_of_gesvd(&of_a, s, u, ldu, vt, ldvt);
    w.info = ret_info;
    const bool fits = are_ours(of, with) && is_type(type, type_s, computed) &&
                      fits_gesvd(&w, jobu, jobvt, type_u, type_vt) &&
                      takes(&w, device, device_bytes, host, host_bytes);
    return run(of, fits, "cusolverDnXgesvd", gesvd, &w);
}
