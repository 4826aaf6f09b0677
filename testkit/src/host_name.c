/* Preloaded into a process of a test: the host name in DLOCK_HOST leads to the address in the file named by DLOCK_ADDRESS. The
 * file is read at each look-up. All other names are looked up as ever. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int look_up(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    look_up *original = (look_up *)dlsym(RTLD_NEXT, "getaddrinfo");
    const char *name = getenv("DLOCK_HOST"), *file = getenv("DLOCK_ADDRESS");
    char address[64];
    if (host && name && file && strcmp(host, name) == 0) {
        FILE *read = fopen(file, "re");
        if (!read)
            return EAI_FAIL;
        const char *line = fgets(address, sizeof address, read);
        fclose(read);
        if (!line)
            return EAI_FAIL;
        host = address;
    }
    return original(host, service, hints, found);
}
