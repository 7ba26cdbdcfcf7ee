// Opens libraries, and finds out why one does not open. See optional.h.
#include "lib/base/optional.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// -------------------------------------------------------------------------------------------------
// the loader beside fork()

// The C library lets a fork cut the loader in two: in the child what another thread was opening would be
// known, but not whole, and the child would crash in the next look for a name. So a fork waits for
// who is inside, and they for it. Several may be inside: the loader has a lock of its own.
// Where a fork leaves the child a lock of pthread's for readers, nobody can give it back there.
static pthread_mutex_t door = PTHREAD_MUTEX_INITIALIZER; ///< over what follows; held by who forks
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned inside;  ///< threads
static unsigned waiting; ///< to fork
static bool turn;        ///< of who waits to fork: all have left, and nobody enters before it
static _Thread_local unsigned inside_here; ///< a library's constructor may come here again, or fork

/// A wait would let the thread be cancelled; neither fork() nor opening does.
static void wait_at_door(void) {
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    pthread_cond_wait(&changed, &door);
    pthread_setcancelstate(state, NULL);
}

static void enter_loader(void) {
    if (inside_here++ > 0)
        return;
    pthread_mutex_lock(&door);
    while (turn)
        wait_at_door();
    inside++;
    pthread_mutex_unlock(&door);
}

static void leave_loader(void) {
    if (--inside_here > 0)
        return;
    pthread_mutex_lock(&door);
    if (--inside == 0 && waiting > 0) {
        turn = true;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&door);
}

static void before_fork(void) {
    pthread_mutex_lock(&door);
    if (inside_here > 0)
        return;
    waiting++;
    while (inside > 0)
        wait_at_door();
    waiting--;
    turn = false;
}

static void in_parent(void) {
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&door);
}

/// Of the threads inside, this one alone is there, and nobody waits.
static void in_child(void) {
    inside = inside_here > 0;
    waiting = 0;
    turn = false;
    pthread_cond_init(&changed, NULL);
    pthread_mutex_unlock(&door);
}

__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(before_fork, in_parent, in_child);
}

// -------------------------------------------------------------------------------------------------
// one file

static bool is_shortage(int error) {
    return error == ENOMEM || error == EMFILE || error == ENFILE;
}

/// Whether a library's segments would find a place.
static bool has_address_space(void) {
    enum { BYTES = 64 << 20 };
    void *place = mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place != MAP_FAILED)
        munmap(place, BYTES);
    return place != MAP_FAILED;
}

/// Reads the loader's index of libraries as the loader will. Where the loader once cannot, it does
/// without the index for as long as the process runs, and finds fewer libraries: so it is not asked
/// then.
static bool can_read_index(void) {
    int file = open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return !is_shortage(errno);
    struct stat about;
    bool can = true;
    if (fstat(file, &about) == 0 && about.st_size > 0) {
        size_t bytes = (size_t)about.st_size;
        void *index = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file, 0);
        can = index != MAP_FAILED || !is_shortage(errno);
        if (index != MAP_FAILED)
            munmap(index, bytes);
    }
    close(file);
    return can;
}

/// Of what the loader left behind. It says why in words alone, those of errno in the language of
/// the program at their end; of an mmap that failed it says not even that.
static bool failed_for_shortage(int error, const char *words) {
    static const int shortages[] = {ENOMEM, EMFILE, ENFILE};
    if (!words)
        return true;
    for (size_t i = 0; i < sizeof shortages / sizeof *shortages; i++)
        if (strstr(words, strerror(shortages[i])))
            return true;
    return is_shortage(error) || (!strstr(words, strerror(ENOENT)) && !has_address_space());
}

/// Of a path, which alone the loader takes as it is: it is a pipe, say, which the loader would wait for.
static bool is_no_file(const char *path) {
    struct stat about;
    return strchr(path, '/') && stat(path, &about) == 0 && !S_ISREG(about.st_mode);
}

void *nd__optional_open_file(const char *file, bool *ret_short) {
    if (is_no_file(file))
        return NULL;
    if (!can_read_index()) {
        *ret_short = true;
        return NULL;
    }
    enter_loader();
    errno = 0;
    void *opened = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    int error = errno;
    if (!opened && failed_for_shortage(error, dlerror()))
        *ret_short = true;
    leave_loader();
    return opened;
}

static void close_file(void *file) {
    enter_loader();
    dlclose(file);
    leave_loader();
}

// -------------------------------------------------------------------------------------------------
// a library

static const char *chosen_file(const nd_optional *library) {
    const char *chosen = secure_getenv(library->variable);
    return chosen && *chosen ? chosen : NULL;
}

/// Its functions in a block of their own; NULL when the file lacks one, or there is no memory.
static void *find_all(const nd_optional *library, void *file, bool *ret_short) {
    void **functions = malloc(library->count * sizeof *functions);
    if (!functions)
        *ret_short = true;
    for (size_t i = 0; functions && i < library->count; i++) {
        functions[i] = dlsym(file, library->names[i]);
        if (functions[i])
            continue;
        free(functions);
        functions = NULL;
    }
    return functions;
}

/// The first of the files that opens decides: one that lacks functions is not passed over.
static void *look_for(const nd_optional *library, bool *ret_short) {
    const char *chosen = chosen_file(library);
    void *file = chosen ? nd__optional_open_file(chosen, ret_short) : NULL;
    for (size_t i = 0; !chosen && !file && library->files[i]; i++)
        file = nd__optional_open_file(library->files[i], ret_short);
    if (!file)
        return NULL;
    void *functions = find_all(library, file, ret_short);
    if (!functions)
        close_file(file);
    return functions;
}

static const void *open_library(nd_optional *library, bool *ret_short) {
    void *known = atomic_load_explicit(&library->functions, memory_order_acquire);
    if (known)
        return known;
    void *functions = look_for(library, ret_short);
    if (!functions)
        return NULL;
    if (atomic_compare_exchange_strong_explicit(&library->functions, &known, functions,
                                                memory_order_acq_rel, memory_order_acquire))
        return functions;
    free(functions); // another thread was first, and has the same ones
    return known;
}

const void *nd__optional_functions(nd_optional *library) {
    bool is_short = false;
    return open_library(library, &is_short);
}

/// "liblapack.so.3, libopenblas.so.0 or liblapack.so".
static void list_files(const nd_optional *library, char *text, size_t size) {
    text[0] = '\0';
    for (size_t i = 0; library->files[i]; i++) {
        size_t length = strlen(text);
        const char *between = i == 0 ? "" : library->files[i + 1] ? ", " : " or ";
        snprintf(text + length, size - length, "%s%s", between, library->files[i]);
    }
}

nd_status nd__optional_explain(nd_optional *library, char *text) {
    bool is_short = false;
    if (open_library(library, &is_short))
        is_short = true; // there was something missing, and is no more
    char files[ND__OPTIONAL_TEXT / 2];
    const char *chosen = chosen_file(library);
    if (chosen)
        snprintf(files, sizeof files, "%.200s, which %s names,", chosen, library->variable);
    else
        list_files(library, files, sizeof files);
    if (is_short)
        snprintf(text, ND__OPTIONAL_TEXT,
                 "needs %s, and there was no memory or no file descriptor to open %s",
                 library->what, files);
    else if (chosen)
        snprintf(text, ND__OPTIONAL_TEXT,
                 "needs %s, but %s cannot be opened, or lacks its functions (Debian: %s)",
                 library->what, files, library->package);
    else
        snprintf(text, ND__OPTIONAL_TEXT,
                 "needs %s, which this machine has not: no %s with its functions can be opened "
                 "(Debian: %s; %s names another file)",
                 library->what, files, library->package, library->variable);
    return is_short ? ND_ERROR_OUT_OF_MEMORY : ND_ERROR_UNSUPPORTED;
}
