/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The version of the library, as the build names it; here for builds that do not.
 */
#ifndef FERRY_RUNTIME_VERSION_H
#define FERRY_RUNTIME_VERSION_H

#ifndef FERRY_VERSION_TEXT
#define FERRY_VERSION_TEXT "0.1.0"
#endif

#endif
