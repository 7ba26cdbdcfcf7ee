// What the driver without a device was given.
#ifndef ND_TESTS_CUDART_NO_DRIVER_H
#define ND_TESTS_CUDART_NO_DRIVER_H

typedef struct no_driver_statistics {
    int loads;        ///< of compiled code
    char kernel[256]; ///< that was looked for last
} no_driver_statistics;

typedef void no_driver_get_statistics_function(no_driver_statistics *ret_statistics);
#endif
