// The tests of this folder, one line each; main.c runs them in this order.
#ifndef ND_TESTS_UNIT_CUDA_HOST_TESTS_H
#define ND_TESTS_UNIT_CUDA_HOST_TESTS_H

#define CUDA_HOST_TESTS(TEST)                          \
    TEST(test_division_by_multiplication)              \
    TEST(test_unary_operations_agree)                  \
    TEST(test_binary_operations_agree)                 \
    TEST(test_predicates_agree)                        \
    TEST(test_comparisons_agree)                       \
    TEST(test_logical_operations_agree)                \
    TEST(test_where_agrees)                            \
    TEST(test_copies_and_casts_agree)                  \
    TEST(test_transposes_agree)                        \
    TEST(test_copies_of_runs_agree)                    \
    TEST(test_rows_behind_each_other_agree)            \
    TEST(test_rows_in_units_of_every_size)             \
    TEST(test_gelu_keeps_its_digits)                   \
    TEST(test_slopes_far_from_zero)                    \
    TEST(test_casts_round_ties_once)                   \
    TEST(test_numbers_out_of_range_agree)              \
    TEST(test_reductions_agree)                        \
    TEST(test_long_reductions_in_parts_agree)          \
    TEST(test_rows_by_packs_agree)                     \
    TEST(test_reductions_of_nothing_agree)             \
    TEST(test_positions_of_extrema_agree)              \
    TEST(test_scans_agree)                             \
    TEST(test_sorting_agrees)                          \
    TEST(test_searching_agrees)                        \
    TEST(test_softmax_agrees)                          \
    TEST(test_cross_entropy_of_special_values)         \
    TEST(test_cross_entropy_agrees)                    \
    TEST(test_pair_losses_agree)                       \
    TEST(test_nll_losses_agree)                        \
    TEST(test_take_agrees)                             \
    TEST(test_gather_agrees)                           \
    TEST(test_scatter_add_agrees)                      \
    TEST(test_scatter_reduce_agrees)                   \
    TEST(test_one_hot_agrees)                          \
    TEST(test_masked_select_agrees)                    \
    TEST(test_masked_softmax_agrees)                   \
    TEST(test_softmax_gradients_agree)                 \
    TEST(test_index_out_of_range_is_reported)          \
    TEST(test_fill_arange_eye_agree)                   \
    TEST(test_random_tensors_agree)                    \
    TEST(test_matmul_agrees)                           \
    TEST(test_matmul_by_tiles_agrees)                  \
    TEST(test_aligned_products_are_sums)               \
    TEST(test_other_products_are_refused)              \
    TEST(test_tiles_fill_the_device)                   \
    TEST(test_matmul_of_vectors_agrees)                \
    TEST(test_linear_of_one_row_agrees)                \
    TEST(test_matmul_of_nan_agrees)                    \
    TEST(test_linear_agrees)                           \
    TEST(test_matmul_by_blas_agrees)                   \
    TEST(test_norms_agree)                             \
    TEST(test_norms_in_parts)                          \
    TEST(test_norms_of_halves_agree)                   \
    TEST(test_quantized_products_agree)                \
    TEST(test_integer_products_agree)                  \
    TEST(test_integer_products_by_blas_agree)          \
    TEST(test_convolutions_agree)                      \
    TEST(test_convolutions_of_16_bits_agree)           \
    TEST(test_unfolding_agrees)                        \
    TEST(test_max_pool_agrees)                         \
    TEST(test_resampling_agrees)                       \
    TEST(test_attention_agrees)                        \
    TEST(test_attention_of_floats_agrees)              \
    TEST(test_attention_without_a_key_to_see)          \
    TEST(test_attention_of_halves_agrees)              \
    TEST(test_attention_of_large_scores)               \
    TEST(test_attention_of_special_values)             \
    TEST(test_attention_gradients_agree)               \
    TEST(test_attention_gradients_of_floats_agree)     \
    TEST(test_attention_gradients_of_steep_scores)     \
    TEST(test_attention_gradients_of_what_is_not_seen) \
    TEST(test_attention_gradients_repeat)              \
    TEST(test_recurrent_cells_agree)                   \
    TEST(test_dropout_agrees)                          \
    TEST(test_chains_agree)                            \
    TEST(test_chains_of_a_rounded_number)              \
    TEST(test_chains_of_one_operand_twice)             \
    TEST(test_every_operation_was_compared)

#define DECLARE(name) void name(void **state);
CUDA_HOST_TESTS(DECLARE)
#undef DECLARE
#endif
