/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `ferry cp`: a file to a segment's memory, or the other way. The main thread reads and writes the
 * file; the engine moves the pieces. A file is written under a temporary name in the same folder
 * and renamed when it is complete, so no partial file ever has the wanted name.
 */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <json-c/json.h>

#include "common.h"
#include "mover.h"
#include "place.h"
#include "text.h"

#define CHUNK_DEFAULT  (UINT64_C(4) << 20)
#define CHUNK_MAX      (UINT64_C(1) << 30)
#define WINDOW_DEFAULT 8

enum { KEY_VERIFY = 0x2000, KEY_LENGTH, KEY_CHUNK, KEY_WINDOW, KEY_TRANSPORT };

struct arguments {
    struct ferry_cli cli;
    const char *source;
    const char *destination;
    struct ferry_place place;
    const char *path;
    bool upload;
    bool verify;
    bool quiet;
    bool length_given;
    uint64_t length;
    uint64_t chunk_bytes;
    uint64_t window;
    const char *transport;
};

static const struct argp_option options[] = {
    {"verify", KEY_VERIFY, NULL, 0, "Read everything back and compare it with the file", 0},
    {"length", KEY_LENGTH, "SIZE", 0, "Copy only so much: " FERRY_CLI_SIZE_HELP, 0},
    {"chunk", KEY_CHUNK, "SIZE", 0, "Bytes of one request (default 4MiB)", 0},
    {"window", KEY_WINDOW, "COUNT", 0, "Requests in flight (default 8, at most 256)", 0},
    {"transport", KEY_TRANSPORT, "NAME", 0, "Use this transport and no other", 0},
    {"quiet", 'q', NULL, 0, "No progress bar and no summary", 0},
    {NULL, 0, NULL, 0, NULL, 0},
};

static void parse_size_in(struct argp_state *state, const char *flag, const char *arg, uint64_t max,
                          uint64_t *bytes_out)
{
    if (!ferry_cli_parse_size(arg, bytes_out) || *bytes_out > max) {
        argp_error(state, "%s %s: expected " FERRY_CLI_SIZE_HELP ", at most %" PRIu64 " bytes",
                   flag, arg, max);
    }
}

/* Exactly one of the two is a place in a segment. */
static void check_ends(struct arguments *arguments, struct argp_state *state)
{
    struct ferry_place source, destination;

    if (arguments->destination == NULL)
        argp_error(state, "expected a source and a destination");

    enum ferry_place_kind from = ferry_place_parse(arguments->source, &source);
    enum ferry_place_kind to = ferry_place_parse(arguments->destination, &destination);

    if (from == FERRY_PLACE_WRONG || to == FERRY_PLACE_WRONG) {
        argp_error(state, "%s: expected ferry://" FERRY_PLACE_HELP,
                   from == FERRY_PLACE_WRONG ? arguments->source : arguments->destination);
    }
    if ((from == FERRY_PLACE_SEGMENT) == (to == FERRY_PLACE_SEGMENT)) {
        argp_error(
            state,
            "%s, %s: expected one file and one place in a segment, HOST:PORT[/[INDEX][+OFFSET]], "
            "HOST:PORT/@ADDRESS, file://PATH, ferry://" FERRY_PLACE_HELP,
            arguments->source, arguments->destination);
    }
    arguments->upload = to == FERRY_PLACE_SEGMENT;
    arguments->place = arguments->upload ? destination : source;
    arguments->path = arguments->upload ? arguments->source : arguments->destination;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct arguments *arguments = state->input;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &arguments->cli;
        return 0;
    case KEY_VERIFY:
        arguments->verify = true;
        return 0;
    case KEY_LENGTH:
        arguments->length_given = true;
        parse_size_in(state, "--length", arg, INT64_MAX, &arguments->length);
        return 0;
    case KEY_CHUNK:
        parse_size_in(state, "--chunk", arg, CHUNK_MAX, &arguments->chunk_bytes);
        if (arguments->chunk_bytes == 0)
            argp_error(state, "--chunk %s: expected at least 1", arg);
        return 0;
    case KEY_WINDOW:
        if (!ferry_cli_parse_u64(arg, &arguments->window) || arguments->window == 0 ||
            arguments->window > FERRY_MOVER_WINDOW_MAX)
            argp_error(state, "--window %s: expected 1..%u", arg, FERRY_MOVER_WINDOW_MAX);
        return 0;
    case KEY_TRANSPORT:
        arguments->transport = arg;
        return 0;
    case 'q':
        arguments->quiet = true;
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num > 1)
            argp_error(state, "unexpected argument \"%s\"", arg);
        if (state->arg_num == 0) {
            arguments->source = arg;
        } else {
            arguments->destination = arg;
        }
        return 0;
    case ARGP_KEY_END:
        check_ends(arguments, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* The file that is written: its wanted path, and the temporary one beside it. */
struct output {
    char path[PATH_MAX];
    char temporary[PATH_MAX + 32];
    mode_t mode;
    int fd;
};

static int fail_path(const char *path, int err)
{
    ferry_cli_say("%s: %s", path, strerror(err));
    return FERRY_EXIT_ENVIRONMENT;
}

static mode_t default_mode(void)
{
    mode_t mask = umask(0);

    umask(mask);
    return 0666 & ~mask;
}

static int output_open(struct output *output, const char *path)
{
    struct stat stat_now;
    char copy[PATH_MAX];

    output->fd = -1;
    output->mode = default_mode();
    if (strlen(path) >= sizeof(output->path))
        return fail_path(path, ENAMETOOLONG);
    snprintf(output->path, sizeof(output->path), "%s", path);
    if (stat(path, &stat_now) == 0) {
        if (!S_ISREG(stat_now.st_mode)) {
            ferry_cli_say("%s: exists and is not a regular file", path);
            return FERRY_EXIT_USAGE;
        }
        /* A link stays a link: what it points to is replaced. */
        if (realpath(path, output->path) == NULL)
            return fail_path(path, errno);
        output->mode = stat_now.st_mode & 07777;
    } else if (errno != ENOENT) {
        return fail_path(path, errno);
    }
    memcpy(copy, output->path, sizeof(copy));
    snprintf(output->temporary, sizeof(output->temporary), "%s/.ferry-cp-XXXXXX", dirname(copy));
    output->fd = mkostemp(output->temporary, O_CLOEXEC);
    if (output->fd < 0)
        return fail_path(output->path, errno);
    return FERRY_EXIT_OK;
}

/* Give the file its name, or remove it. */
static int output_close(struct output *output, int exit_status)
{
    if (output->fd < 0)
        return exit_status;
    if (exit_status == FERRY_EXIT_OK && fchmod(output->fd, output->mode) < 0)
        exit_status = fail_path(output->path, errno);
    if (close(output->fd) < 0 && exit_status == FERRY_EXIT_OK)
        exit_status = fail_path(output->path, errno);
    if (exit_status == FERRY_EXIT_OK && rename(output->temporary, output->path) < 0)
        exit_status = fail_path(output->path, errno);
    if (exit_status != FERRY_EXIT_OK)
        unlink(output->temporary);
    output->fd = -1;
    return exit_status;
}

static int input_open(const char *path, int *fd_out, uint64_t *length_out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat stat_now;

    if (fd < 0)
        return fail_path(path, errno);
    if (fstat(fd, &stat_now) < 0 || !S_ISREG(stat_now.st_mode)) {
        close(fd);
        ferry_cli_say("%s: expected a regular file", path);
        return FERRY_EXIT_USAGE;
    }
    *fd_out = fd;
    *length_out = (uint64_t)stat_now.st_size;
    return FERRY_EXIT_OK;
}

static void on_signal(int number)
{
    ferry_mover_interrupted = number;
}

/* From now on SIGINT and SIGTERM end the copy between two pieces, so that it can clean up. */
static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};

    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static void summarize(const struct arguments *arguments, const struct ferry_mover *mover,
                      double seconds)
{
    double rate = seconds > 0 ? (double)mover->length / seconds : 0;
    char size[FERRY_CLI_TEXT_SIZE], speed[FERRY_CLI_TEXT_SIZE];

    if (arguments->cli.json) {
        struct json_object *object = json_object_new_object();

        json_object_object_add(object, "source", json_object_new_string(arguments->source));
        json_object_object_add(object, "destination",
                               json_object_new_string(arguments->destination));
        json_object_object_add(object, "bytes", json_object_new_uint64(mover->length));
        json_object_object_add(object, "seconds", ferry_cli_json_number(seconds));
        json_object_object_add(object, "gb_per_s", ferry_cli_json_number(rate / 1e9));
        json_object_object_add(object, "verified_bytes",
                               json_object_new_uint64(arguments->verify ? mover->length : 0));
        json_object_object_add(
            object, "transport",
            mover->used_transport != NULL ? json_object_new_string(mover->used_transport) : NULL);
        ferry_cli_print_json(object);
    } else if (!arguments->quiet) {
        printf("%s copied in %.3f s, %s%s\n", ferry_cli_size(mover->length, size), seconds,
               ferry_cli_rate(rate, speed), arguments->verify ? ", verified" : "");
    }
}

static int move(struct arguments *arguments, struct ferry_mover *mover)
{
    bool bar = !arguments->quiet && !arguments->cli.json;
    struct ferry_progress progress;
    uint64_t begun_ns = ferry_cli_now_ns();
    int exit_status = FERRY_EXIT_OK;
    double seconds;

    mover->progress = &progress;
    ferry_progress_begin(&progress, arguments->upload ? "write" : "read", mover->length, bar);
    exit_status = ferry_mover_open(mover);
    if (exit_status == FERRY_EXIT_OK) {
        exit_status = ferry_mover_run(mover, arguments->upload ? FERRY_MOVER_UPLOAD
                                                               : FERRY_MOVER_DOWNLOAD);
    }
    seconds = (double)(ferry_cli_now_ns() - begun_ns) / 1e9;
    ferry_progress_end(&progress);
    if (exit_status == FERRY_EXIT_OK && arguments->verify) {
        ferry_progress_begin(&progress, "verify", mover->length, bar);
        exit_status = ferry_mover_run(mover, FERRY_MOVER_COMPARE);
        ferry_progress_end(&progress);
    }
    ferry_mover_close(mover);
    if (exit_status == FERRY_EXIT_OK)
        summarize(arguments, mover, seconds);
    return exit_status;
}

/* How much is copied, or false after a message that names both sizes. */
static bool choose_length(const struct arguments *arguments, uint64_t have, uint64_t room,
                          uint64_t *length_out)
{
    uint64_t length = arguments->length_given ? arguments->length : have;

    if (length > have) {
        ferry_cli_say("%s: --length %" PRIu64 ", but there are %" PRIu64 " bytes",
                      arguments->source, length, have);
        return false;
    }
    if (length > room) {
        ferry_cli_say("%s: %" PRIu64 " bytes do not fit into the %" PRIu64 " bytes there",
                      arguments->destination, length, room);
        return false;
    }
    *length_out = length;
    return true;
}

static int copy(struct arguments *arguments, struct ferry_mover *mover)
{
    struct output output = {.fd = -1};
    uint64_t room;
    int exit_status = FERRY_EXIT_OK;

    if (!ferry_place_resolve(mover->engine, mover->segment, &arguments->place, arguments->upload,
                             &mover->remote_addr, &room))
        return FERRY_EXIT_USAGE;
    if (!arguments->upload) {
        if (!choose_length(arguments, room, UINT64_MAX, &mover->length))
            return FERRY_EXIT_USAGE;
        exit_status = output_open(&output, arguments->path);
        mover->fd = output.fd;
        if (exit_status == FERRY_EXIT_OK)
            exit_status = move(arguments, mover);
        return output_close(&output, exit_status);
    }

    uint64_t have = 0;

    exit_status = input_open(arguments->path, &mover->fd, &have);
    if (exit_status != FERRY_EXIT_OK)
        return exit_status;
    exit_status = choose_length(arguments, have, room, &mover->length) ? move(arguments, mover)
                                                                       : FERRY_EXIT_USAGE;
    close(mover->fd);
    return exit_status;
}

static int open_and_copy(const struct ferry_config *config, struct arguments *arguments)
{
    int exit_status = FERRY_EXIT_OK;
    struct ferry_mover *mover = calloc(1, sizeof(*mover));

    if (mover == NULL) {
        ferry_cli_say("out of memory");
        return FERRY_EXIT_ENVIRONMENT;
    }
    mover->path = arguments->path;
    mover->chunk_bytes = arguments->chunk_bytes;
    mover->window = (uint32_t)arguments->window;
    mover->transport = arguments->transport;
    mover->engine = ferry_cli_open(config, &exit_status);
    if (mover->engine != NULL) {
        enum ferry_status status = ferry_segment_open(mover->engine, arguments->place.name,
                                                      FERRY_NO_DEADLINE, &mover->segment);

        if (status == FERRY_OK) {
            exit_status = copy(arguments, mover);
            ferry_segment_close(mover->engine, mover->segment);
        } else {
            exit_status = ferry_cli_fail(status, "");
        }
        exit_status = ferry_cli_close(mover->engine, exit_status);
    }
    free(mover);
    return exit_status;
}

int ferry_cmd_cp(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "SOURCE DESTINATION",
        .doc =
            "Copy a file to a segment's memory, or a segment's memory to a file.\v"
            "One of the two is a file, the other a place in a segment:\n\n"
            "  HOST:PORT[/[INDEX][+OFFSET]]   in buffer INDEX (default 0)\n"
            "  HOST:PORT/@ADDRESS             at an address of the peer\n"
            "  file://PATH                    a file as a segment: as long as it is, direct I/O\n"
            "  ferry://NAME/...               the same, for any segment name\n\n"
            "A file that is written gets its name when it is complete; nothing partial stays "
            "behind.\n\n" FERRY_EXIT_HELP,
        .children = ferry_cli_children,
    };
    struct arguments arguments = {.chunk_bytes = CHUNK_DEFAULT, .window = WINDOW_DEFAULT};

    if (argp_parse(&argp, argc, argv, 0, NULL, &arguments) != 0)
        return FERRY_EXIT_USAGE;

    struct ferry_config *config = ferry_cli_config(&arguments.cli);

    if (config == NULL)
        return FERRY_EXIT_USAGE;
    catch_signals();

    int exit_status = open_and_copy(config, &arguments);

    ferry_config_destroy(config);
    if (ferry_mover_interrupted && exit_status != FERRY_EXIT_OK) {
        /* End the way that a program without a handler would. */
        signal(ferry_mover_interrupted, SIG_DFL);
        raise(ferry_mover_interrupted);
    }
    return exit_status;
}
