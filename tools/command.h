/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The subcommands of `ferry`, and the exit statuses that all of them share. Each is one file; it
 * parses its own arguments and returns an exit status. One thread.
 */
#ifndef FERRY_TOOLS_COMMAND_H
#define FERRY_TOOLS_COMMAND_H

/* Documented in ferry(1). */
enum ferry_exit {
    FERRY_EXIT_OK = 0,
    FERRY_EXIT_DATA = 1,        /* a transfer or a comparison failed */
    FERRY_EXIT_USAGE = 2,       /* wrong arguments or settings */
    FERRY_EXIT_ENVIRONMENT = 3, /* this host, a peer or a store does not do what is needed */
    FERRY_EXIT_SIGNAL = 128,    /* and the number of the signal that ended it early */
};

#define FERRY_EXIT_HELP                                                                            \
    "Exit status: 0 success, 1 a transfer or comparison failed, 2 wrong arguments or settings, "   \
    "3 this host or the peer does not do what is needed."

int ferry_cmd_serve(int argc, char **argv);
int ferry_cmd_cp(int argc, char **argv);
int ferry_cmd_segment(int argc, char **argv);
int ferry_cmd_info(int argc, char **argv);
int ferry_cmd_doctor(int argc, char **argv);
int ferry_cmd_config(int argc, char **argv);

#endif
