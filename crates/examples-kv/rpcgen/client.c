/*
 * A client of the store by another implementation of ONC RPC: the stubs that Debian's rpcgen makes of kv.x, with
 * libtirpc. The client calls over TCP, compares the results, and provokes the refusals of RFC 5531 section 9.
 * scripts/rpcgen-client.sh builds and runs it.
 *
 * Usage: client PORT, of a server on 127.0.0.1 with an empty store.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kv.h"

static int checks;

static void check(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "wrong: %s\n", what);
        exit(1);
    }
    checks++;
}

static CLIENT *client_of(const char *port, rpcvers_t version)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons((in_port_t)atoi(port)),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    int socket = RPC_ANYSOCK;
    CLIENT *client = clnttcp_create(&address, KV_PROGRAM, version, &socket, 0, 0);
    if (client == NULL) {
        clnt_pcreateerror("connect");
        exit(1);
    }
    return client;
}

/* Stores a value of this length, fetches it, and compares. */
static void there_and_back(CLIENT *client, char *name, u_int length)
{
    char *value = malloc(length + 1);
    for (u_int at = 0; at < length; at++)
        value[at] = (char)(at % 251);
    kv_entry entry = { .name = name, .value = { .value_len = length, .value_val = value } };
    kv_status *status = kv_put_1(&entry, client);
    check(status != NULL && *status == KV_OK, "KV_PUT stores a value");
    kv_key key = { .name = name };
    kv_found *found = kv_get_1(&key, client);
    check(found != NULL && found->status == KV_OK, "KV_GET finds the value");
    check(found->kv_found_u.value.value_len == length, "KV_GET returns all bytes");
    check(memcmp(found->kv_found_u.value.value_val, value, length) == 0, "KV_GET returns these bytes");
    xdr_free((xdrproc_t)xdr_kv_found, (char *)found);
    free(value);
}

static enum clnt_stat raw(CLIENT *client, rpcproc_t procedure)
{
    struct timeval time = { .tv_sec = 25 };
    return clnt_call(client, procedure, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, time);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: client PORT\n");
        return 2;
    }
    CLIENT *client = client_of(argv[1], KV_STORE);
    check(raw(client, NULLPROC) == RPC_SUCCESS, "procedure 0 answers");

    there_and_back(client, "empty", 0);
    there_and_back(client, "odd", 5);
    there_and_back(client, "largest", KV_VALUE_MAX);

    kv_names *names = kv_list_1(NULL, client);
    check(names != NULL && names->keys.keys_len == 3, "KV_LIST returns three keys");
    const char *sorted[] = { "empty", "largest", "odd" };
    for (int at = 0; at < 3; at++)
        check(strcmp(names->keys.keys_val[at].name, sorted[at]) == 0, "KV_LIST returns the keys in order");
    xdr_free((xdrproc_t)xdr_kv_names, (char *)names);

    kv_key key = { .name = "odd" };
    kv_status *status = kv_remove_1(&key, client);
    check(status != NULL && *status == KV_OK, "KV_REMOVE removes a value");
    status = kv_remove_1(&key, client);
    check(status != NULL && *status == KV_ABSENT, "KV_REMOVE finds nothing more");
    kv_found *found = kv_get_1(&key, client);
    check(found != NULL && found->status == KV_ABSENT, "KV_GET finds nothing more");

    /* Errors: the connection goes on after each. */
    check(raw(client, 99) == RPC_PROCUNAVAIL, "there is no procedure 99: PROC_UNAVAIL");
    check(raw(client, KV_GET) == RPC_CANTDECODEARGS, "KV_GET needs arguments: GARBAGE_ARGS");
    CLIENT *newer = client_of(argv[1], KV_STORE + 1);
    check(raw(newer, KV_LIST) == RPC_PROGVERSMISMATCH, "there is no version 2: PROG_MISMATCH");
    struct rpc_err mismatch;
    clnt_geterr(newer, &mismatch);
    check(mismatch.re_vers.low == KV_STORE && mismatch.re_vers.high == KV_STORE, "PROG_MISMATCH names version 1");
    check(raw(client, NULLPROC) == RPC_SUCCESS, "procedure 0 answers after errors");

    clnt_destroy(newer);
    clnt_destroy(client);
    printf("rpcgen's client: %d checks of values and errors hold\n", checks);
    return 0;
}
