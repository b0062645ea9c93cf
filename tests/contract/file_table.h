/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table that a test program of files prints: which acceptance case and which row of the fault
 * table was shown by which test. A row is printed when its test got that far, so a row that fails
 * or is skipped is missing. Header only; the test's thread.
 */
#ifndef FERRY_TESTS_CONTRACT_FILE_TABLE_H
#define FERRY_TESTS_CONTRACT_FILE_TABLE_H

#include <stdio.h>

#define FILE_TABLE_MAX 128

struct file_table_row {
    const char *kind; /* "case" or "fault" */
    int number;
    const char *text;
};

static struct file_table_row file_table[FILE_TABLE_MAX];
static int file_table_len;

static inline void file_shown(const char *kind, int number, const char *text)
{
    if (file_table_len < FILE_TABLE_MAX)
        file_table[file_table_len++] = (struct file_table_row){kind, number, text};
}

static inline void file_table_print(const char *program)
{
    for (int i = 0; i < file_table_len; i++)
        printf("%s: %s %2d  shown  %s\n", program, file_table[i].kind, file_table[i].number,
               file_table[i].text);
}

#define shows_case(number, text)  file_shown("case", (number), (text))
#define shows_fault(number, text) file_shown("fault", (number), (text))

#endif
