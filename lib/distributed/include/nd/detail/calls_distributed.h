// The lines of <nd/detail/calls.h> for <nd/distributed.h>: where both are included, in either order.
#ifndef ND_DETAIL_CALLS_DISTRIBUTED_H
#define ND_DETAIL_CALLS_DISTRIBUTED_H

#define nd_communicator_from_world(...) \
    ND__NEW_OBJECT(nd_communicator *, nd_communicator_from_world, __VA_ARGS__)
#define nd_communicator_from_mpi(...) \
    ND__NEW_OBJECT(nd_communicator *, nd_communicator_from_mpi, __VA_ARGS__)
#define nd_communicator_duplicate(...) \
    ND__NEW_OBJECT(nd_communicator *, nd_communicator_duplicate, __VA_ARGS__)
#define nd_communicator_from_nccl(...) \
    ND__NEW_OBJECT(nd_communicator *, nd_communicator_from_nccl, __VA_ARGS__)
#define nd_communicator_from_nccl_file(...) \
    ND__NEW_OBJECT(nd_communicator *, nd_communicator_from_nccl_file, __VA_ARGS__)
#define nd_broadcast_(...) ND__CALL(nd_broadcast_, __VA_ARGS__)
#define nd_all_reduce(...) ND__NEW_TENSOR(nd_all_reduce, __VA_ARGS__)
#define nd_all_reduce_(...) ND__CALL(nd_all_reduce_, __VA_ARGS__)
#define nd_reduce_scatter(...) ND__NEW_TENSOR(nd_reduce_scatter, __VA_ARGS__)
#define nd_all_gather(...) ND__NEW_TENSOR(nd_all_gather, __VA_ARGS__)
#define nd_send(...) ND__CALL(nd_send, __VA_ARGS__)
#define nd_receive_(...) ND__CALL(nd_receive_, __VA_ARGS__)
#define nd_data_parallel_new(...) \
    ND__NEW_OBJECT(nd_data_parallel *, nd_data_parallel_new, __VA_ARGS__)
#define nd_data_parallel_backward(...) ND__CALL(nd_data_parallel_backward, __VA_ARGS__)
#define nd_data_parallel_synchronize(...) ND__CALL(nd_data_parallel_synchronize, __VA_ARGS__)
#define nd_data_parallel_step(...) ND__CALL(nd_data_parallel_step, __VA_ARGS__)
#define nd_data_parallel_gather_state(...) ND__CALL(nd_data_parallel_gather_state, __VA_ARGS__)
#define nd_data_parallel_load_state(...) ND__CALL(nd_data_parallel_load_state, __VA_ARGS__)

#endif
