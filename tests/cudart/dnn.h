// What the two files of the fake cuDNN share.
#ifndef ND_TESTS_CUDART_DNN_H
#define ND_TESTS_CUDART_DNN_H
#include "tests/cudart/blas.h"
#include <stdint.h>

enum { BAD_PARAM = 2000, NOT_SUPPORTED_SHAPE = 3002, NO_HOST_MEMORY = 4003, FAILED = 5000 };
enum { NOT_FINALIZED = 2004, DNN_NOT_INITIALIZED = 1001 };
/// What ND_CUDART_CUDNN asks for; from 1000 on a status that creating a handle answers.
enum {
    REFUSES = 100,    ///< it does not choose
    OFFERS_REFUSED,   ///< every offer is refused
    WANTS_MUCH,       ///< every offer wants more memory than there is
    RUNS_NOT,         ///< running refuses
    FIRST_WANTS_MUCH, ///< the first offer that could be taken does
    IS_OLD,           ///< cuDNN 9.19, which hides no scores
    ENGINES_DIFFER,   ///< no engine gives the same bits every time
    ASKED_ONCE        ///< it ends the program when it is asked for the same offers twice
};
enum { OF_HANDLE = 0x2D1, OF_TENSOR, OF_FILTER, OF_CONVOLUTION, OF_POOLING, OF_DESCRIPTOR };

typedef struct handle {
    int magic;
    queue_function *queue;
    cudaStream_t stream;
} handle;
#endif
