// Saving on a disk that forgets what was not synced, and what of the old file stays.
//
// The calls that change files go through here (linked with --wrap). The disk remembers a file's
// content as of its last fsync and a folder's names as of the folder's; before and after every call
// the test asks what a crash would leave: the old file whole, the new one whole, or the new one
// whole under another name while the old one is being written over. Every writer of the library is
// tried so.
#include "tests/unit/io/files.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/sendfile.h>

#define MOST 16

typedef struct content {
    char *data;
    size_t bytes;
} content;

static struct {
    bool watched;
    char folder[512];
    content before, after; ///< what the target held, data NULL for no file, and what it is to hold
    struct {
        ino_t inode;
        bool clean; ///< nothing was written since the last fsync
        content synced;
    } files[MOST];
    int nfiles;
    struct {
        char name[256];
        ino_t inode;
    } names[MOST]; ///< as of the folder's last fsync
    int nnames;
    int syncs, checks;
    int fail_sendfile, fail_folder; ///< errno to fail with once, 0: none
} disk;

static content read_content(int file) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    content read;
    read.data = nd_test_read(path, &read.bytes);
    return read;
}

static bool same_content(const content *a, const content *b) {
    return a->data && b->data && a->bytes == b->bytes && memcmp(a->data, b->data, a->bytes) == 0;
}

static int file_of(ino_t inode) {
    for (int i = 0; i < disk.nfiles; i++)
        if (disk.files[i].inode == inode)
            return i;
    assert_true(disk.nfiles < MOST);
    disk.files[disk.nfiles].inode = inode;
    disk.files[disk.nfiles].clean = false;
    disk.files[disk.nfiles].synced = (content){NULL, 0};
    return disk.nfiles++;
}

static ino_t inode_of(int file) {
    struct stat stat;
    assert_int_equal(fstat(file, &stat), 0);
    return stat.st_ino;
}

static void note_written(int file) {
    if (disk.watched)
        disk.files[file_of(inode_of(file))].clean = false;
}

static void note_names(void) {
    DIR *folder = opendir(disk.folder);
    assert_non_null(folder);
    disk.nnames = 0;
    for (const struct dirent *entry; (entry = readdir(folder));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            assert_true(disk.nnames < MOST);
            snprintf(disk.names[disk.nnames].name, sizeof disk.names[0].name, "%s", entry->d_name);
            disk.names[disk.nnames++].inode = entry->d_ino;
        }
    closedir(folder);
}

static void note_synced(int file) {
    struct stat stat;
    assert_int_equal(fstat(file, &stat), 0);
    disk.syncs++;
    if (S_ISDIR(stat.st_mode)) {
        note_names();
        return;
    }
    int at = file_of(stat.st_ino);
    free(disk.files[at].synced.data);
    disk.files[at].synced = read_content(file);
    disk.files[at].clean = true;
}

/// The inode that a name has on the disk, or 0.
static ino_t durable_inode(const char *name) {
    for (int i = 0; i < disk.nnames; i++)
        if (strcmp(disk.names[i].name, name) == 0)
            return disk.names[i].inode;
    return 0;
}

static ino_t present_inode(const char *name) {
    char path[800];
    snprintf(path, sizeof path, "%s/%s", disk.folder, name);
    struct stat stat;
    return lstat(path, &stat) == 0 ? stat.st_ino : 0;
}

/// Whether the new content would be found under a name that is on the disk and was not taken away
/// since.
static bool copy_is_durable(void) {
    for (int i = 0; i < disk.nnames; i++) {
        int at = file_of(disk.names[i].inode);
        if (present_inode(disk.names[i].name) == disk.names[i].inode && disk.files[at].clean &&
            same_content(&disk.files[at].synced, &disk.after))
            return true;
    }
    return false;
}

static void check_inode(ino_t inode) {
    if (inode == 0) {
        assert_null(disk.before.data); // no file: only when there was none
        return;
    }
    int at = file_of(inode);
    if (disk.files[at].clean && (same_content(&disk.files[at].synced, &disk.before) ||
                                 same_content(&disk.files[at].synced, &disk.after)))
        return;
    if (!copy_is_durable())
        fail_msg("after %d syncs a crash would leave a part of the file", disk.syncs);
}

/// What a crash now would leave under the target's name: the disk may know of a rename that was not
/// synced, or not.
static void check_crash(void) {
    if (!disk.watched)
        return;
    disk.checks++;
    check_inode(durable_inode("model"));
    check_inode(present_inode("model"));
}

// --------------------------------------------------------------------------------------- the calls

#define REAL(type, name, ...)        \
    type __real_##name(__VA_ARGS__); \
    type __wrap_##name(__VA_ARGS__)

REAL(ssize_t, write, int file, const void *data, size_t bytes);
ssize_t __wrap_write(int file, const void *data, size_t bytes) {
    check_crash();
    ssize_t written = __real_write(file, data, bytes);
    note_written(file);
    check_crash();
    return written;
}

REAL(ssize_t, sendfile, int to, int from, off_t *offset, size_t bytes);
ssize_t __wrap_sendfile(int to, int from, off_t *offset, size_t bytes) {
    check_crash();
    if (disk.fail_sendfile && *offset > 0) {
        errno = disk.fail_sendfile;
        return -1;
    }
    // In two parts, so that there is a moment between them.
    ssize_t sent = __real_sendfile(to, from, offset, *offset == 0 && bytes > 9 ? 9 : bytes);
    note_written(to);
    check_crash();
    return sent;
}

REAL(int, ftruncate, int file, off_t size);
int __wrap_ftruncate(int file, off_t size) {
    check_crash();
    int result = __real_ftruncate(file, size);
    note_written(file);
    check_crash();
    return result;
}

REAL(int, fsync, int file);
int __wrap_fsync(int file) {
    check_crash();
    struct stat stat;
    if (disk.fail_folder && fstat(file, &stat) == 0 && S_ISDIR(stat.st_mode)) {
        errno = disk.fail_folder;
        return -1;
    }
    int result = __real_fsync(file);
    if (disk.watched && result == 0)
        note_synced(file);
    check_crash();
    return result;
}

REAL(int, rename, const char *from, const char *to);
int __wrap_rename(const char *from, const char *to) {
    check_crash();
    int result = __real_rename(from, to);
    check_crash();
    return result;
}

REAL(int, unlink, const char *path);
int __wrap_unlink(const char *path) {
    check_crash();
    int result = __real_unlink(path);
    check_crash();
    return result;
}

// ------------------------------------------------------------------------------------------- tests

/// Saves what is made of a value and a size: the same bytes for the same ones.
typedef nd_status (*save_function)(const char *path, double value, int64_t count);

static nd_status save_safetensors(const char *path, double value, int64_t count) {
    nd_auto nd_tensor *x = nd_full(ND_SHAPE(count), value, ND_F32);
    assert_handle(x);
    return nd_save_safetensors(path, 1, (const char *const[]){"x"}, (const nd_tensor *const[]){x});
}

static nd_status save_npy(const char *path, double value, int64_t count) {
    nd_auto nd_tensor *x = nd_full(ND_SHAPE(count), value, ND_F32);
    assert_handle(x);
    return nd_save_npy(path, x);
}

static nd_status save_npz(const char *path, double value, int64_t count) {
    nd_auto nd_tensor *x = nd_full(ND_SHAPE(count), value, ND_F32);
    nd_auto nd_tensor *y = nd_rand(nd_key_new((uint64_t)value), ND_SHAPE(count), ND_F32);
    assert_handle(x);
    assert_handle(y);
    return nd_save_npz(path, 2, (const char *const[]){"x", "y"}, (const nd_tensor *const[]){x, y},
                       NULL);
}

static nd_status save_csv(const char *path, double value, int64_t count) {
    nd_auto nd_tensor *x = nd_rand(nd_key_new((uint64_t)value), ND_SHAPE(count, 2), ND_F32);
    assert_handle(x);
    return nd_save_csv(path, x, NULL);
}

/// Noise, so that it stays large.
static nd_tensor *make_picture(double value, int64_t count) {
    enum { SIDE = 300 };
    const int64_t rows = (count + SIDE - 1) / SIDE, columns = count < SIDE ? count : SIDE;
    nd_tensor *picture =
        nd_randint(nd_key_new((uint64_t)value), 0, 256, ND_SHAPE(rows, columns), ND_U8);
    assert_handle(picture);
    return picture;
}

static nd_status save_png(const char *path, double value, int64_t count) {
    nd_auto nd_tensor *picture = make_picture(value, count);
    return nd_save_png(path, picture, NULL);
}

static nd_status save_jpeg(const char *path, double value, int64_t count) {
    nd_auto nd_tensor *picture = make_picture(value, count);
    return nd_save_jpeg(path, picture, NULL);
}

static nd_status save_parameters(const char *path, double value, int64_t count) {
    nd_auto nd_module *module = nd_linear_module(nd_key_new((uint64_t)value), count, 1, true);
    assert_handle(module);
    return nd_save_parameters(module, path);
}

static nd_status save_state(const char *path, double value, int64_t count) {
    nd_auto nd_module *module = nd_linear_module(nd_key_new((uint64_t)value), count, 1, true);
    nd_auto nd_optimizer *optimizer = nd_adam(module, NULL);
    nd_auto nd_state *state = nd_state_new();
    assert_handle(state);
    assert_ok(nd_state_add_module(state, "model", module));
    assert_ok(nd_state_add_optimizer(state, "optimizer", optimizer));
    assert_ok(nd_state_set_i64(state, "step", (int64_t)value));
    return nd_save_state(state, path);
}

static const struct {
    const char *name;
    save_function save;
} writers[] = {
    {"safetensors", save_safetensors},
    {"npy", save_npy},
    {"npz", save_npz},
    {"csv", save_csv},
    {"png", save_png},
    {"jpeg", save_jpeg},
    {"parameters", save_parameters},
    {"state", save_state},
};
enum { WRITERS = sizeof writers / sizeof *writers };

/// The one that is tested.
static save_function save = save_safetensors;

/// Whether this build and machine have it.
static bool choose_writer(int writer) {
    save = writers[writer].save;
    nd_status status = save(nd_test_path("tried"), 1, 1);
    unlink(nd_test_path("tried"));
    if (status == ND_ERROR_UNSUPPORTED) {
        print_message("SKIPPED: %s\n", nd_error_get_message());
        nd_error_clear();
        return false;
    }
    assert_ok(status);
    return true;
}

static content content_of(const char *path) {
    content read;
    read.data = nd_test_read(path, &read.bytes);
    return read;
}

/// An empty folder, in which "model" holds a synced old file if asked.
static const char *begin_disk(const char *name, bool exists, int64_t count) {
    disk.watched = false;
    snprintf(disk.folder, sizeof disk.folder, "%s", nd_test_path(name));
    assert_int_equal(mkdir(disk.folder, 0700), 0);
    static char target[600];
    char other[600];
    snprintf(target, sizeof target, "%s/model", disk.folder);
    snprintf(other, sizeof other, "%s/other", nd_test_path(""));
    assert_ok(save(other, 2, count));
    disk.after = content_of(other);
    unlink(other);
    disk.before = (content){NULL, 0};
    if (exists) {
        assert_ok(save(target, 1, 3 + count / 2));
        disk.before = content_of(target);
    }
    return target;
}

static void watch_disk(void) {
    disk.nfiles = disk.nnames = disk.syncs = disk.checks = 0;
    disk.watched = true;
    int folder = open(disk.folder, O_RDONLY), target = openat(folder, "model", O_RDONLY);
    note_synced(folder);
    if (target >= 0) {
        note_synced(target);
        close(target);
    }
    close(folder);
}

static void end_disk(void) {
    disk.watched = false;
    disk.fail_folder = disk.fail_sendfile = 0;
    for (int i = 0; i < disk.nfiles; i++)
        free(disk.files[i].synced.data);
    free(disk.before.data);
    free(disk.after.data);
    disk.nfiles = 0;
    disk.before.data = disk.after.data = NULL; // a test that watches nothing ends here, too
}

/// After ND_OK nothing is left to chance: the name leads to the new content on the disk, and to
/// nothing else in the folder but `names` names.
static void assert_saved_for_good(int names) {
    ino_t inode = present_inode("model");
    assert_true(inode != 0 && durable_inode("model") == inode);
    int at = file_of(inode);
    assert_true(disk.files[at].clean && same_content(&disk.files[at].synced, &disk.after));
    assert_true(disk.checks > 5);
    disk.watched = false;
    assert_int_equal(nd_test_count_files(disk.folder), 2 + names);
}

/// One writer, into a folder without the file or with it, from small to several buffers.
static void check_crashes(const char *writer) {
    for (int exists = 0; exists < 2; exists++)
        for (int64_t count = 1; count < 100000; count *= 300) {
            char name[64];
            snprintf(name, sizeof name, "crash_%s_%d_%lld", writer, exists, (long long)count);
            const char *target = begin_disk(name, exists, count);
            watch_disk();
            assert_ok(save(target, 2, count));
            assert_saved_for_good(1);
            end_disk();
        }
}

static void test_F39_a_crash_leaves_the_old_file_or_the_new_one(void **state) {
    (void)state;
    for (int i = 0; i < WRITERS; i++)
        if (choose_writer(i))
            check_crashes(writers[i].name);
    save = save_safetensors;
}

static void check_names(const char *writer) {
    for (int64_t count = 1; count < 100000; count *= 300) {
        char name[64], second[700];
        snprintf(name, sizeof name, "names_%s_%lld", writer, (long long)count);
        const char *target = begin_disk(name, true, count);
        snprintf(second, sizeof second, "%s/second", disk.folder);
        assert_int_equal(link(target, second), 0);
        watch_disk();
        assert_ok(save(target, 2, count));
        assert_saved_for_good(2);
        assert_int_equal(present_inode("model"), present_inode("second"));
        end_disk();
    }
}

static void test_F39_a_file_of_several_names_keeps_them(void **state) {
    (void)state;
    for (int i = 0; i < WRITERS; i++)
        if (choose_writer(i))
            check_names(writers[i].name);
    save = save_safetensors;
}

static void test_F39_a_write_that_fails_over_the_old_file_keeps_the_new_one(void **state) {
    (void)state;
    char second[700], copy[900];
    const char *target = begin_disk("fails", true, 500);
    snprintf(second, sizeof second, "%s/second", disk.folder);
    assert_int_equal(link(target, second), 0);
    watch_disk();
    disk.fail_sendfile = EIO;
    assert_int_equal(save(target, 2, 500), ND_ERROR_IO);
    check_crash();
    disk.watched = false;
    const char *in = strstr(nd_error_get_message(), "is in '");
    assert_non_null(in);
    snprintf(copy, sizeof copy, "%s", in + 7);
    copy[strcspn(copy, "'")] = '\0';
    nd_error_clear();
    content kept = content_of(copy);
    assert_true(same_content(&kept, &disk.after));
    free(kept.data);
    unlink(copy);
    end_disk();
}

static void test_F39_a_folder_that_cannot_be_synced(void **state) {
    (void)state;
    const char *target = begin_disk("folder", true, 5);
    disk.fail_folder = EINVAL; // a file system that knows no such thing
    assert_ok(save(target, 2, 5));
    disk.fail_folder = EIO;
    assert_int_equal(save(target, 2, 5), ND_ERROR_IO);
    assert_failed(ND_ERROR_IO, "folder");
    content now = content_of(target);
    assert_true(same_content(&now, &disk.after));
    free(now.data);
    end_disk();
}

/// A link with the text leads to the saved file.
static void check_link(const char *text, const char *leads_to) {
    char link[700], file[700];
    snprintf(link, sizeof link, "%s/link", disk.folder);
    snprintf(file, sizeof file, "%s/%s", disk.folder, leads_to);
    __real_unlink(link);
    assert_int_equal(symlink(text, link), 0);
    assert_ok(save(link, 2, 5));
    struct stat stat;
    assert_int_equal(lstat(link, &stat), 0);
    assert_true(S_ISLNK(stat.st_mode));
    content now = content_of(file);
    assert_true(same_content(&now, &disk.after));
    free(now.data);
}

static void test_F39_symbolic_links_are_written_through(void **state) {
    (void)state;
    const char *target = begin_disk("links", true, 5);
    char inner[700], chain[700];
    snprintf(inner, sizeof inner, "%s/inner", disk.folder);
    assert_int_equal(mkdir(inner, 0700), 0);
    check_link(target, "model");
    check_link("model", "model");
    check_link("new", "new"); // nothing is there yet
    check_link("inner/new", "inner/new");
    snprintf(chain, sizeof chain, "%s/inner/chain", disk.folder);
    assert_int_equal(symlink("../newer", chain), 0);
    check_link("inner/chain", "newer");
    char link[700];
    snprintf(link, sizeof link, "%s/link", disk.folder);
    __real_unlink(link);
    assert_int_equal(symlink("link", link), 0);
    assert_int_equal(save(link, 2, 5), ND_ERROR_IO);
    assert_failed(ND_ERROR_IO, "cannot be opened");
    end_disk();
}

/// Where the test may: root, outside of a user namespace with one user.
static bool can_give_away(const char *path) {
    return geteuid() == 0 && chown(path, 4242, 4343) == 0;
}

static void test_F39_owner_group_and_permissions_stay(void **state) {
    (void)state;
    const char *target = begin_disk("owner", true, 5);
    assert_int_equal(chmod(target, 0640), 0);
    bool given = can_give_away(target);
    struct stat before, now;
    assert_int_equal(stat(target, &before), 0);
    assert_ok(save(target, 2, 5));
    assert_int_equal(stat(target, &now), 0);
    assert_int_equal(now.st_mode, before.st_mode);
    assert_int_equal(now.st_uid, before.st_uid);
    assert_int_equal(now.st_gid, before.st_gid);
    // Somebody who may write the file and not give it away: it is written over, and stays its
    // owner's.
    if (given) {
        assert_int_equal(chmod(target, 0666), 0);
        assert_int_equal(chmod(disk.folder, 0777), 0);
        assert_int_equal(chdir(disk.folder), 0);
        assert_int_equal(seteuid(65534), 0);
        nd_status status = save("model", 2, 5);
        assert_int_equal(seteuid(0), 0);
        assert_int_equal(chdir("/"), 0);
        assert_ok(status);
        assert_int_equal(stat(target, &now), 0);
        assert_int_equal(now.st_uid, 4242);
        assert_int_equal(now.st_ino, present_inode("model"));
    }
    end_disk();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_F39_a_crash_leaves_the_old_file_or_the_new_one),
        ND_TEST(test_F39_a_file_of_several_names_keeps_them),
        ND_TEST(test_F39_a_write_that_fails_over_the_old_file_keeps_the_new_one),
        ND_TEST(test_F39_a_folder_that_cannot_be_synced),
        ND_TEST(test_F39_symbolic_links_are_written_through),
        ND_TEST(test_F39_owner_group_and_permissions_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
