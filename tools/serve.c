/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `ferry serve`: registers memory, prints the name under which peers find it, and waits for SIGTERM
 * or SIGINT. The main thread does all of it; the engine's threads serve.
 *
 * Order of the end: close the engine (peers are told, connections end, memory is unregistered),
 * then give the memory of loaded files back.
 */
#include <argp.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <json-c/json.h>

#include "common.h"
#include "text.h"

#define PARTS_MAX 4096

enum { KEY_NAME = 0x2000, KEY_LOAD, KEY_PERMISSION };

/* One --memory or --load, in the order of the command line. */
struct part {
    const char *text;
    const char *path;     /* --load */
    uint64_t length;      /* of a file: once it is loaded */
    const char *location; /* inside text; NULL: any */
    void *map;            /* of a file */
};

struct arguments {
    struct ferry_cli cli;
    const char *name;
    char host[256]; /* "": as configured */
    uint16_t port;
    enum ferry_permission permission;
    struct part *parts;
    size_t part_count;
};

static const struct argp_option options[] = {
    {"listen", 'l', "ADDR:PORT", 0,
     "Where the control plane listens; port 0 picks one (default 127.0.0.1:0)", 0},
    {"memory", 'm', "SIZE[@LOCATION]", 0,
     "Offer zeroed memory: " FERRY_CLI_SIZE_HELP "; LOCATION is cpu:N or *. May be repeated", 0},
    {"load", KEY_LOAD, "FILE", 0, "Offer memory that holds a copy of FILE. May be repeated", 0},
    {"permission", KEY_PERMISSION, "WHAT", 0,
     "What peers may do: read-only or read-write (default)", 0},
    {"name", 'n', "NAME", 0, "Segment name; needs a metadata store", 0},
    {NULL, 0, NULL, 0, NULL, 0},
};

static void add_part(struct arguments *arguments, struct argp_state *state, struct part part)
{
    if (arguments->part_count == PARTS_MAX)
        argp_error(state, "at most %d times --memory and --load", PARTS_MAX);

    struct part *parts = realloc(arguments->parts,
                                 (arguments->part_count + 1) * sizeof(*arguments->parts));

    if (parts == NULL) {
        argp_failure(state, FERRY_EXIT_ENVIRONMENT, ENOMEM, "--memory");
        return; /* not reached: it exits */
    }
    arguments->parts = parts;
    arguments->parts[arguments->part_count++] = part;
}

static void parse_memory(struct arguments *arguments, struct argp_state *state, char *arg)
{
    struct part part = {.text = arg};
    char *at = strchr(arg, '@');
    char size[64];
    size_t size_len = at != NULL ? (size_t)(at - arg) : strlen(arg);

    if (at != NULL)
        part.location = at + 1;
    if (size_len >= sizeof(size))
        argp_error(state, "--memory %s: expected SIZE[@LOCATION]", arg);
    memcpy(size, arg, size_len);
    size[size_len] = '\0';
    if (!ferry_cli_parse_size(size, &part.length) || part.length == 0)
        argp_error(state, "--memory %s: expected " FERRY_CLI_SIZE_HELP, arg);
    if (part.location != NULL && part.location[0] == '\0')
        argp_error(state, "--memory %s: expected cpu:N or * behind the @", arg);
    add_part(arguments, state, part);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct arguments *arguments = state->input;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &arguments->cli;
        return 0;
    case 'l':
        if (!ferry_cli_split_place(arg, arguments->host, sizeof(arguments->host), &arguments->port))
            argp_error(state, "--listen %s: expected ADDR:PORT or [ADDR]:PORT, port 0..65535", arg);
        return 0;
    case 'm':
        parse_memory(arguments, state, arg);
        return 0;
    case KEY_LOAD:
        add_part(arguments, state, (struct part){.text = arg, .path = arg});
        return 0;
    case KEY_PERMISSION:
        if (strcmp(arg, "read-only") == 0) {
            arguments->permission = FERRY_PERMISSION_READ_ONLY;
        } else if (strcmp(arg, "read-write") == 0) {
            arguments->permission = FERRY_PERMISSION_READ_WRITE;
        } else {
            argp_error(state, "--permission %s: expected read-only or read-write", arg);
        }
        return 0;
    case 'n':
        arguments->name = arg;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument \"%s\"", arg);
        return EINVAL;
    case ARGP_KEY_END:
        if (arguments->part_count == 0)
            argp_error(state, "nothing to serve: expected --memory or --load");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* The flags are shorthand for settings. */
static bool apply_flags(struct ferry_config *config, const struct arguments *arguments)
{
    char port[8];

    if (arguments->host[0] != '\0') {
        snprintf(port, sizeof(port), "%u", arguments->port);
        if (!ferry_cli_set(config, "rpc_server_hostname", arguments->host) ||
            !ferry_cli_set(config, "rpc_server_port", port))
            return false;
    }
    if (arguments->name != NULL)
        return ferry_cli_set(config, "local_segment_name", arguments->name);
    return true;
}

/* Fill @memory from the file; a file that shrinks meanwhile is an error, not a fault. */
static bool read_file(int fd, const char *path, unsigned char *memory, uint64_t length)
{
    for (uint64_t done = 0; done < length;) {
        ssize_t got = read(fd, memory + done, length - done);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            ferry_cli_say("--load %s: %s", path,
                          got < 0 ? strerror(errno) : "became shorter while it was read");
            return false;
        }
        done += (uint64_t)got;
    }
    return true;
}

static int load_fd(struct ferry_engine *engine, struct part *part, enum ferry_permission permission,
                   int fd)
{
    struct ferry_memory_range range = FERRY_MEMORY_RANGE_INIT;
    struct stat stat;

    if (fstat(fd, &stat) < 0) {
        ferry_cli_say("--load %s: %s", part->path, strerror(errno));
        return FERRY_EXIT_ENVIRONMENT;
    }
    if (!S_ISREG(stat.st_mode) || stat.st_size == 0) {
        ferry_cli_say("--load %s: expected a regular file that is not empty", part->path);
        return FERRY_EXIT_USAGE;
    }

    /* A copy: mapping the file itself would fault when somebody cuts it, and peers would change it.
     */
    void *map = mmap(NULL, (size_t)stat.st_size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (map == MAP_FAILED) {
        ferry_cli_say("--load %s: %s", part->path, strerror(errno));
        return FERRY_EXIT_ENVIRONMENT;
    }
    part->map = map;
    part->length = (uint64_t)stat.st_size;
    if (!read_file(fd, part->path, map, part->length))
        return FERRY_EXIT_ENVIRONMENT;
    range.addr = map;
    range.length = part->length;
    range.permission = permission;

    enum ferry_status status = ferry_memory_register(engine, &range, 1);

    return status == FERRY_OK ? FERRY_EXIT_OK : ferry_cli_fail(status, part->path);
}

static int load(struct ferry_engine *engine, struct part *part, enum ferry_permission permission)
{
    int fd = open(part->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0) {
        ferry_cli_say("--load %s: %s", part->path, strerror(errno));
        return FERRY_EXIT_ENVIRONMENT;
    }

    int exit_status = load_fd(engine, part, permission, fd);

    close(fd);
    return exit_status;
}

static int offer(struct ferry_engine *engine, struct arguments *arguments)
{
    for (size_t i = 0; i < arguments->part_count; i++) {
        struct part *part = &arguments->parts[i];
        char what[128];
        void *addr;

        if (part->path != NULL) {
            int exit_status = load(engine, part, arguments->permission);

            if (exit_status != FERRY_EXIT_OK)
                return exit_status;
            continue;
        }

        enum ferry_status status = ferry_memory_alloc(engine, part->length, part->location,
                                                      arguments->permission, &addr);

        if (status != FERRY_OK) {
            snprintf(what, sizeof(what), "--memory %.100s", part->text);
            return ferry_cli_fail(status, what);
        }
    }
    return FERRY_EXIT_OK;
}

static int announce(struct ferry_engine *engine, const struct arguments *arguments)
{
    const char *name = ferry_engine_segment_name(engine);
    struct ferry_segment_buffer *buffers = NULL;
    size_t count = 0;
    enum ferry_status status = ferry_cli_buffers(engine, FERRY_SEGMENT_LOCAL, &buffers, &count);

    if (status != FERRY_OK)
        return ferry_cli_fail(status, "cannot list what is served");
    if (arguments->cli.json) {
        struct json_object *hello = json_object_new_object();

        json_object_object_add(hello, "name", json_object_new_string(name));
        json_object_object_add(hello, "pid", json_object_new_int64(getpid()));
        json_object_object_add(hello, "buffers", ferry_cli_buffers_json(buffers, count));
        ferry_cli_print_json(hello);
    } else {
        printf("segment %s\n", name);
        ferry_cli_print_buffers(buffers, count);
    }
    free(buffers);
    /* Whoever waits for the name must not wait for a full pipe buffer. */
    if (fflush(stdout) != 0) {
        ferry_cli_say("standard output: %s", strerror(errno));
        return FERRY_EXIT_ENVIRONMENT;
    }
    return FERRY_EXIT_OK;
}

/* Open descriptors now; UINT64_MAX if there is none left to count them with. */
static uint64_t count_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    uint64_t count = 0;
    struct dirent *entry;

    while (dir != NULL && (entry = readdir(dir)) != NULL)
        count += entry->d_name[0] != '.';
    if (dir == NULL)
        return errno == EMFILE ? UINT64_MAX : 0;
    closedir(dir);
    return count - 1; /* the one that counted */
}

/*
 * A listener without a descriptor left accepts nobody and says nothing: peers see a connection that
 * is never answered. One peer needs its data connections, one for control, and one spare.
 */
static bool can_accept(const struct ferry_config *config)
{
    struct rlimit limit;
    char text[32] = "";
    uint64_t used = count_descriptors();
    uint64_t needed;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || used == 0)
        return true;
    if (ferry_config_get(config, "transports.hp_tcp.connections_per_peer", text, sizeof(text)) !=
            FERRY_OK ||
        !ferry_cli_parse_u64(text, &needed))
        needed = 4;
    needed += 2;
    if (used == UINT64_MAX)
        used = limit.rlim_cur;
    if (limit.rlim_cur >= used && limit.rlim_cur - used >= needed)
        return true;
    ferry_cli_say("cannot serve: the open-file limit is %" PRIu64 ", of which %" PRIu64
                  " are in use, and one peer needs %" PRIu64
                  ": raise it with ulimit -n, to 4096 say, or LimitNOFILE= of the service",
                  (uint64_t)limit.rlim_cur, used, needed);
    return false;
}

static int serve(const struct ferry_config *config, struct arguments *arguments,
                 const sigset_t *ends)
{
    int exit_status = FERRY_EXIT_OK;
    struct ferry_engine *engine = ferry_cli_open(config, &exit_status);

    if (engine == NULL)
        return exit_status;
    exit_status = offer(engine, arguments);
    if (exit_status == FERRY_EXIT_OK && !can_accept(config))
        exit_status = FERRY_EXIT_ENVIRONMENT;
    if (exit_status == FERRY_EXIT_OK)
        exit_status = announce(engine, arguments);
    while (exit_status == FERRY_EXIT_OK && sigwaitinfo(ends, NULL) < 0) {
        /* EINTR: a signal that ends nothing. */
    }
    return ferry_cli_close(engine, exit_status);
}

static void give_back(struct arguments *arguments)
{
    for (size_t i = 0; i < arguments->part_count; i++) {
        if (arguments->parts[i].map != NULL)
            munmap(arguments->parts[i].map, arguments->parts[i].length);
    }
    free(arguments->parts);
}

int ferry_cmd_serve(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .doc =
            "Register memory, print the name of its segment, and let peers read and write it "
            "until SIGTERM or SIGINT.\vThe first line is \"segment NAME\"; with --json it is one "
            "object with \"name\" and \"buffers\".\n\n" FERRY_EXIT_HELP,
        .children = ferry_cli_children,
    };
    struct arguments arguments = {.permission = FERRY_PERMISSION_READ_WRITE};
    int exit_status = FERRY_EXIT_USAGE;
    sigset_t ends;

    if (argp_parse(&argp, argc, argv, 0, NULL, &arguments) != 0)
        return FERRY_EXIT_USAGE;

    /* Blocked before the engine starts its threads, so that only sigwaitinfo() takes them. */
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);

    struct ferry_config *config = ferry_cli_config(&arguments.cli);

    if (config != NULL && apply_flags(config, &arguments))
        exit_status = serve(config, &arguments, &ends);
    ferry_config_destroy(config);
    give_back(&arguments);
    return exit_status;
}
