// Shows that gcc's AddressSanitizer, not the library, hangs a child that is forked beside threads:
// nothing of ndarc is in it (docs/testing.md).
//
// Threads allocate, free, start and end; the process forks beside them; the child allocates, starts
// a thread and ends. Prints how many children of so many forks had to be ended by their alarm.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3, KEPT = 64, ENOUGH = 2 };

static void *allocate_once(void *data) {
    free(malloc(100));
    return data;
}

static void start_and_join(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, allocate_once, NULL) == 0)
        pthread_join(thread, NULL);
}

static void *allocate(void *data) {
    for (;;) {
        void *kept[KEPT];
        for (int i = 0; i < KEPT; i++)
            kept[i] = malloc((size_t)16 << (i % 12));
        for (int i = 0; i < KEPT; i++)
            free(kept[i]);
        start_and_join();
    }
    return data;
}

static void be_a_child(void) {
    alarm(20);
    for (int i = 0; i < 50; i++)
        free(malloc((size_t)16 << (i % 12)));
    start_and_join();
    _exit(0);
}

int main(int argc, char **argv) {
    int forks = argc > 1 ? atoi(argv[1]) : 3000, hung = 0, done = 0;
    pthread_t thread;
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&thread, NULL, allocate, NULL) != 0)
            return 1;
    for (; done < forks && hung < ENOUGH; done++) {
        pid_t child = fork();
        if (child == 0)
            be_a_child();
        int status = 0;
        waitpid(child, &status, 0);
        hung += WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
    }
    printf("%d of %d children hung\n", hung, done);
    fflush(stdout);
    _exit(0);
}
