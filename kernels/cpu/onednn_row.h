// Long rows of a convolution, cut into runs.
//
// oneDNN generates code for every place of a row, up to 3.5 kB for each, and keeps it; each length of
// rows has code of its own. So long rows are computed run by run. A run is a convolution of copies of
// short pieces of rows, with zeros where they reach beyond their ends, and rows of all lengths have runs
// of few sizes. A single row that is not as long is lengthened by zeros to one of few lengths in the same
// way: in one run. Windows are one place apart: others leave rows as they are.
#ifndef ND_KERNELS_CPU_ONEDNN_ROW_H
#define ND_KERNELS_CPU_ONEDNN_ROW_H
#include "kernels/cpu/onednn_plan.h"

#if ND_HAVE_ONEDNN
/// How the rows of one convolution are cut.
typedef struct nd__conv_row {
    bool cut; ///< else the row is computed as it is
    int64_t runs;
    int64_t run; ///< places from one to the next
    // Of x, and of y: where the first run begins, before the row's first place where it is negative;
    // places of a run.
    int64_t first[2], places[2];
    int64_t padding; ///< of a run, on either side
} nd__conv_row;

enum { ND__ROW_OF_X, ND__ROW_OF_Y };

/// Pieces of rows in an operand with whole ones.
typedef struct nd__conv_pieces {
    float *data; ///< the first row
    int64_t images, image_stride, rows, row;
    int64_t first, places; ///< of each row
} nd__conv_pieces;

nd__conv_row nd__conv_row_of(nd_op op, const nd__conv_sizes *sizes);
/// The convolution of a run of a part with whole rows.
nd__conv_part nd__conv_row_cut(const nd__conv_row *row, const nd__conv_part *part);
/// What a run reads or writes of x or y, of which `data` is the part's first row.
nd__conv_pieces nd__conv_row_pieces(const nd__conv_row *row, const nd__conv_part *part, int of,
                                    int64_t run, void *data);
void nd__conv_row_read(const nd__conv_pieces *from, float *to);
void nd__conv_row_write(const nd__conv_pieces *to, const float *from);
#endif
#endif
