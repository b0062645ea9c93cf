/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A main for fuzz targets without libFuzzer: run the target once over each file named, or over each
 * file in a directory named. Prints the file before it runs, so that a crash says which it was.
 */
#include "fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#define INPUT_BYTES_MAX (1u << 20)

/* The block ends where the input ends, so that the sanitizers see a read past it. */
static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");

    if (file == NULL) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return 1;
    }

    static uint8_t buffer[INPUT_BYTES_MAX];
    size_t size = fread(buffer, 1, sizeof(buffer), file);
    int failed = ferror(file) != 0 || fgetc(file) != EOF;

    fclose(file);
    if (failed) {
        fprintf(stderr, "%s: unreadable, or larger than %u bytes\n", path, INPUT_BYTES_MAX);
        return 1;
    }

    uint8_t *input = malloc(size > 0 ? size : 1);

    if (input == NULL) {
        fprintf(stderr, "%s: out of memory\n", path);
        return 1;
    }
    if (size > 0)
        memcpy(input, buffer, size);
    printf("%s\n", path);
    fflush(stdout);
    LLVMFuzzerTestOneInput(input, size);
    free(input);
    return 0;
}

static int replay_directory(const char *path, unsigned *count_out)
{
    DIR *directory = opendir(path);
    int failures = 0;

    if (directory == NULL) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return 1;
    }
    for (const struct dirent *entry = readdir(directory); entry != NULL;
         entry = readdir(directory)) {
        char file[4096];
        struct stat info;

        if (snprintf(file, sizeof(file), "%s/%s", path, entry->d_name) >= (int)sizeof(file))
            continue;
        if (stat(file, &info) != 0 || !S_ISREG(info.st_mode))
            continue;
        failures += replay_file(file);
        (*count_out)++;
    }
    closedir(directory);
    return failures;
}

int main(int argc, char **argv)
{
    unsigned count = 0;
    int failures = 0;

    for (int i = 1; i < argc; i++) {
        struct stat info;

        if (stat(argv[i], &info) == 0 && S_ISDIR(info.st_mode)) {
            failures += replay_directory(argv[i], &count);
        } else {
            failures += replay_file(argv[i]);
            count++;
        }
    }
    if (count == 0) {
        fprintf(stderr, "usage: %s FILE|DIRECTORY...: nothing was run\n", argv[0]);
        return 2;
    }
    printf("%u inputs, %d unreadable\n", count, failures);
    return failures == 0 ? 0 : 1;
}
