/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rig of the file tests; see file_rig.h. Runs on the test's thread.
 */
#include "contract/file_rig.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <json-c/json.h>

#include "runtime/seams.h"
#include "unit/runtime_store.h"

static const char *const pool_settings[] = {"transports.io_uring.enable", "false", NULL};

static const char *const uring_settings[] = {"transports.io_uring.enable", "true", NULL};

static const struct file_kind kinds[] = {
    {.name = "gds", .path = "paths.gds_compatibility.bytes", .cufile = true},
    {.name = "uring", .settings = uring_settings, .path = "paths.direct.bytes"},
    {.name = "pool", .settings = pool_settings, .path = "paths.direct.bytes"},
};

const struct file_kind *file_find_kind(const char *name)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    }
    return NULL;
}

void file_skip_if_missing(const struct file_kind *kind)
{
    if (kind->cufile && getenv("FERRY_TEST_CUFILE") == NULL) {
        printf("SKIP: FERRY_TEST_CUFILE names no library\n");
        exit(77);
    }
}

static void configure(struct ferry_config *config, const char *const *settings)
{
    for (size_t i = 0; settings != NULL && settings[i] != NULL; i += 2)
        assert_ok(ferry_config_set(config, settings[i], settings[i + 1], FERRY_ORIGIN_API));
}

static void open_engine(struct file_rig *rig, const char *const *settings)
{
    struct ferry_engine_options options = FERRY_ENGINE_OPTIONS_INIT;
    struct ferry_memory_range range = FERRY_MEMORY_RANGE_INIT;
    struct ferry_engine_seams seams = {.store = &rig->store->base};
    const struct file_kind *kind = rig->kind;
    struct ferry_config *config = NULL;

    assert_ok(ferry_config_create(&config));
    assert_ok(ferry_config_set(config, "transports.gds.enable", kind->cufile ? "true" : "false",
                               FERRY_ORIGIN_API));
    if (kind->cufile)
        assert_ok(ferry_config_set(config, "transports.gds.library", getenv("FERRY_TEST_CUFILE"),
                                   FERRY_ORIGIN_API));
    configure(config, kind->settings);
    configure(config, settings);
    options.config = config;
    options.segment_name = "file-test";
    assert_ok(ferry_engine_open_with(&options, &seams, &rig->engine));
    ferry_config_destroy(config);
    range.addr = rig->local.data;
    range.length = FILE_LOCAL;
    range.permission = FERRY_PERMISSION_LOCAL;
    assert_ok(ferry_memory_register(rig->engine, &range, 1));
    assert_ok(ferry_batch_create(rig->engine, FILE_BATCH, &rig->batch));
}

void file_rig_again(struct file_rig *rig, const char *const *settings)
{
    open_engine(rig, settings);
    assert_ok(
        ferry_segment_open(rig->engine, "nvmeof/files", test_deadline_ms(10000), &rig->segment));
}

void file_rig_open_in(struct file_rig *rig, const struct file_kind *kind,
                      const char *const *settings, const char *folder)
{
    memset(rig, 0, sizeof(*rig));
    rig->kind = kind;
    snprintf(rig->folder, sizeof(rig->folder), "%s", folder);
    rig->store = test_store_open();
    assert_true(fenced_alloc(&rig->local, FILE_LOCAL, 0));
    open_engine(rig, settings);
}

void file_rig_open(struct file_rig *rig, const struct file_kind *kind, const char *const *settings)
{
    char cwd[200];
    char folder[256];

    assert_non_null(getcwd(cwd, sizeof(cwd)));
    snprintf(folder, sizeof(folder), "%s/file-test-%d", cwd, (int)getpid());
    if (mkdir(folder, 0755) != 0)
        assert_int_equal(access(folder, W_OK), 0);
    file_rig_open_in(rig, kind, settings, folder);
}

static void remove_folder(const char *folder)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    char path[600];

    if (dir == NULL)
        return;
    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        unlink(path);
    }
    closedir(dir);
    rmdir(folder);
}

void file_rig_close(struct file_rig *rig)
{
    if (rig->engine != NULL)
        assert_ok(ferry_engine_close(rig->engine));
    test_store_close(rig->store);
    assert_true(fenced_intact(&rig->local));
    fenced_free(&rig->local);
    remove_folder(rig->folder);
}

const char *file_path(const struct file_rig *rig, uint32_t index, char *buf)
{
    const char *second = getenv("FERRY_TEST_SECOND_FOLDER");

    /* Every other file on another file system, if there is one. */
    snprintf(buf, 320, "%s/%u", second != NULL && index % 2 == 1 ? second : rig->folder, index);
    return buf;
}

static uint64_t start_of(const struct file_rig *rig, uint32_t index)
{
    uint64_t start = 0;

    for (uint32_t i = 0; i < index; i++)
        start += rig->lengths[i];
    return start;
}

void file_fill(const struct file_rig *rig, uint32_t index, uint64_t seed)
{
    static unsigned char bytes[1u << 20];
    uint64_t start = start_of(rig, index);
    char path[320];
    int fd = open(file_path(rig, index, path), O_RDWR | O_CREAT | O_CLOEXEC, 0644);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)rig->lengths[index]), 0);
    for (uint64_t at = 0; at < rig->lengths[index];) {
        uint64_t part = rig->lengths[index] - at;

        part = part < sizeof(bytes) ? part : sizeof(bytes);
        pattern_fill(bytes, part, seed, start + at);
        assert_int_equal(pwrite(fd, bytes, part, (off_t)at), part);
        at += part;
    }
    assert_int_equal(close(fd), 0);
}

static void put_document(struct file_rig *rig, const char *text)
{
    char **slot;

    pthread_mutex_lock(&rig->store->mutex);
    slot = test_store_slot(rig->store, "nvmeof/files", true);
    assert_non_null(slot);
    free(*slot);
    *slot = strdup(text);
    pthread_mutex_unlock(&rig->store->mutex);
}

void file_describe(struct file_rig *rig, const char *host)
{
    size_t size = 1000 + (size_t)rig->file_count * 800;
    char *text = malloc(size);
    char name[256];
    char path[320];
    size_t len;

    assert_non_null(text);
    assert_int_equal(gethostname(name, sizeof(name)), 0);
    if (host == NULL)
        host = name;
    len = (size_t)snprintf(text, size,
                           "{\"server_name\": \"elsewhere\", \"protocol\": \"nvmeof\", "
                           "\"buffers\": [");
    for (uint32_t i = 0; i < rig->file_count; i++) {
        file_path(rig, i, path);
        len += (size_t)snprintf(text + len, size - len,
                                "%s{\"length\": %" PRIu64 ", \"file_path\": \"/there/%u\", "
                                "\"local_path_map\": {\"%s\": \"%s\"}}",
                                i > 0 ? ", " : "", rig->lengths[i], i, host, path);
    }
    len += (size_t)snprintf(text + len, size - len, "]}");
    assert_true(len < size);
    put_document(rig, text);
    free(text);
    if (rig->segment == 0)
        assert_ok(ferry_segment_open(rig->engine, "nvmeof/files", test_deadline_ms(10000),
                                     &rig->segment));
}

void file_segment(struct file_rig *rig, const uint64_t *lengths, uint32_t count)
{
    assert_true(count <= FILE_FILES_MAX);
    rig->file_count = count;
    memcpy(rig->lengths, lengths, count * sizeof(lengths[0]));
    for (uint32_t i = 0; i < count; i++)
        file_fill(rig, i, FILE_SEED);
    file_describe(rig, NULL);
}

void file_read_back(const struct file_rig *rig, uint64_t offset, unsigned char *out,
                    uint64_t length)
{
    uint64_t start = 0;
    char path[320];

    for (uint32_t i = 0; i < rig->file_count && length > 0; start += rig->lengths[i], i++) {
        uint64_t part;
        int fd;

        if (offset >= start + rig->lengths[i])
            continue;
        part = start + rig->lengths[i] - offset;
        part = part < length ? part : length;
        fd = open(file_path(rig, i, path), O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0);
        assert_int_equal(pread(fd, out, part, (off_t)(offset - start)), part);
        close(fd);
        out += part;
        offset += part;
        length -= part;
    }
    assert_int_equal(length, 0);
}

void file_expect(const struct file_rig *rig, uint64_t offset, uint64_t length, uint64_t seed,
                 uint64_t from)
{
    unsigned char *bytes = malloc(length > 0 ? length : 1);
    size_t at;

    assert_non_null(bytes);
    file_read_back(rig, offset, bytes, length);
    at = pattern_differs(bytes, length, seed, from);
    free(bytes);
    if (at != PATTERN_SAME)
        fail_msg("byte %zu of %zu at segment offset %zu is not that of seed %zu at position %zu",
                 at, (size_t)length, (size_t)offset, (size_t)seed, (size_t)from);
}

void file_expect_lengths(const struct file_rig *rig)
{
    struct stat now;
    char path[320];

    for (uint32_t i = 0; i < rig->file_count; i++) {
        assert_int_equal(stat(file_path(rig, i, path), &now), 0);
        assert_int_equal(now.st_size, rig->lengths[i]);
    }
}

struct ferry_request file_request(const struct file_rig *rig, enum ferry_opcode opcode,
                                  uint64_t local_offset, uint64_t offset, uint64_t length)
{
    struct ferry_request request = FERRY_REQUEST_INIT;

    request.opcode = opcode;
    request.local = rig->local.data + local_offset;
    request.segment = rig->segment;
    request.remote_offset = offset;
    request.length = length;
    return request;
}

enum ferry_status file_run(struct file_rig *rig, const struct ferry_request *request,
                           struct ferry_task_status *status_out, char *text)
{
    struct ferry_task_status task = FERRY_TASK_STATUS_INIT;

    assert_ok(ferry_batch_reset(rig->engine, rig->batch));
    assert_ok(ferry_batch_submit(rig->engine, rig->batch, request, 1));
    assert_ok(ferry_batch_wait(rig->engine, rig->batch, test_deadline_ms(60000), NULL));
    assert_ok(ferry_task_status(rig->engine, rig->batch, 0, &task));
    if (text != NULL)
        assert_ok(ferry_task_describe(rig->engine, rig->batch, 0, text, 512));
    if (status_out != NULL)
        *status_out = task;
    return task.status;
}

static struct json_object *file_of(struct json_object *root)
{
    struct json_object *list = json_object_object_get(root, "transports");

    for (size_t i = 0; i < json_object_array_length(list); i++) {
        struct json_object *one = json_object_array_get_idx(list, i);

        if (strcmp(json_object_get_string(json_object_object_get(one, "name")), "file") == 0)
            return one;
    }
    return NULL;
}

/* What the report has under a path of names; the caller gives @root_out back. */
static struct json_object *look_up(const struct file_rig *rig, const char *key,
                                   struct json_object **root_out)
{
    char path[128];
    char *rest = NULL;
    char *json = NULL;
    struct json_object *at;

    assert_ok(ferry_engine_report(rig->engine, FERRY_REPORT_TRANSPORTS, &json));
    *root_out = json_tokener_parse(json);
    ferry_text_free(json);
    assert_non_null(*root_out);
    at = file_of(*root_out);
    snprintf(path, sizeof(path), "%s", key);
    for (char *word = strtok_r(path, ".", &rest); word != NULL && at != NULL;
         word = strtok_r(NULL, ".", &rest))
        at = json_object_object_get(at, word);
    if (at == NULL)
        fail_msg("the report has no %s", key);
    return at;
}

uint64_t file_report(const struct file_rig *rig, const char *key)
{
    struct json_object *root;
    uint64_t value = json_object_get_uint64(look_up(rig, key, &root));

    json_object_put(root);
    return value;
}

bool file_report_flag(const struct file_rig *rig, const char *key)
{
    struct json_object *root;
    bool value = json_object_get_boolean(look_up(rig, key, &root));

    json_object_put(root);
    return value;
}
