/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A certificate for tests, made with openssl(1): signed by itself, so that it is its own CA, for
 * 127.0.0.1, ::1 and localhost, valid for a day. Header only; the files go when the program ends.
 */
#ifndef FERRY_TESTS_SUPPORT_CERTIFICATE_H
#define FERRY_TESTS_SUPPORT_CERTIFICATE_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct test_certificate {
    char folder[48];
    char cert[80]; /* the CA too */
    char key[80];
};

static struct test_certificate test_certificate_made;

static inline void test_certificate_remove(void)
{
    unlink(test_certificate_made.cert);
    unlink(test_certificate_made.key);
    rmdir(test_certificate_made.folder);
}

/* The one of this program, made at the first call. NULL: openssl(1) did not make it. */
static inline const struct test_certificate *test_certificate(void)
{
    struct test_certificate *made = &test_certificate_made;
    char command[512];

    if (made->folder[0] != '\0')
        return made;
    snprintf(made->folder, sizeof(made->folder), "/tmp/ferry-certificate-%d-XXXXXX", (int)getpid());
    if (mkdtemp(made->folder) == NULL)
        return NULL;
    snprintf(made->cert, sizeof(made->cert), "%.47s/cert.pem", made->folder);
    snprintf(made->key, sizeof(made->key), "%.47s/key.pem", made->folder);
    atexit(test_certificate_remove);
    snprintf(command, sizeof(command),
             "umask 077; openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes "
             "-days 1 -subj /CN=test -addext 'subjectAltName=IP:127.0.0.1,IP:::1,DNS:localhost' "
             "-keyout %s -out %s 2>/dev/null",
             made->key, made->cert);
    return system(command) == 0 ? made : NULL;
}

#endif
