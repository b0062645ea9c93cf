/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Close-on-exec for the descriptors that libcurl keeps to itself.
 */
#ifndef FERRY_CONTROL_CURL_FDS_H
#define FERRY_CONTROL_CURL_FDS_H

#include <curl/curl.h>

/*
 * libcurl before 8.9 makes the wake-up socket pair of a multi handle without close-on-exec and
 * tells nobody the two numbers. Find them and set the flag. @multi must be fresh: no transfer, and
 * used by no other thread yet. What cannot be found is left as it is.
 */
void ferry_curl_set_cloexec(CURLM *multi);

#endif
