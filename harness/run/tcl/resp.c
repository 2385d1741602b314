/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A client for RESP2 and RESP3: an extension of Tcl, small enough to be trusted as a measuring instrument.
 *
 * It owns one thing: bytes to and from an endpoint, exactly as they are, each operation with a deadline. It
 * refuses to interpret: a reply comes back typed, an error reply is a reply like any other, and nothing is
 * retried or reconnected. The grammar of replies is that of the RESP specification (RESP2) and of RESP3.
 * Streamed aggregates are refused.
 *
 * It is written in C because a client in Tcl took more processor time than the server that it tested: Tcl
 * waits for a socket with the help of a thread, and takes each line of a reply apart with a dozen commands.
 *
 *     resp::connect ENDPOINT SECONDS [RECORD]
 *                                      Connects to HOST:PORT, or to the Unix socket of an absolute path.
 *                                      Returns a connection, each operation of which may take SECONDS
 *                                      (fractions allowed). It appends sent and received bytes to the file
 *                                      RECORD, as harness/record/proxy/self_recording.py defines. A connection to
 *                                      a server that is gone then appears as one that the server has closed.
 *     resp::send CONNECTION BYTES      Sends raw bytes, as many in one send(2) as the kernel has room for.
 *     resp::encode WORD...             Returns the bytes of a command: an array of bulks, one for each word.
 *     resp::reply CONNECTION           Reads one whole reply and returns it typed.
 *     resp::replyBytes CONNECTION      Reads one whole reply and returns its bytes.
 *     resp::call CONNECTION WORD...    Sends one command and returns its typed reply.
 *     resp::closing CONNECTION         Returns what happens to the connection without further requests:
 *                                      "closed" as soon as the server has closed it, otherwise "sent N more
 *                                      bytes: BYTES" or "open after SECONDS seconds". Use it after requests
 *                                      that must end the connection.
 *     resp::hangUp CONNECTION          Ends the sending side, and closes the connection when the server has
 *                                      closed it, which has then read everything that was sent. `close` does
 *                                      not wait for that.
 *     resp::close CONNECTION           Closes a connection. Harmless on one that is closed.
 *     resp::lost                       Returns why a record is incomplete; empty if all are complete.
 *     resp::onSilence SECONDS SCRIPT   While a reply is awaited, asks SCRIPT every SECONDS whether it may still
 *                                      come. The wait ends if SCRIPT denies it twice in a row.
 *
 * A typed reply is a list of two elements, TYPE and VALUE:
 *
 *     simple TEXT        error TEXT          integer DIGITS       bulk BYTES         null bulk|array|plain
 *     array {REPLY ...}  set {REPLY ...}     push {REPLY ...}     map {REPLY REPLY ...}
 *     double TEXT        boolean t|f         bignumber DIGITS     verbatim {FORMAT BYTES}
 *     bloberror BYTES    attribute {{REPLY REPLY ...} REPLY}  (attributes, and the reply they belong to)
 *
 * Numbers stay text, because a client that reads and prints them again would hide what the server printed.
 *
 * Errors are thrown with an error code, so that a caller can distinguish them:
 *
 *     RESP CLOSED        the other side closed the connection, or reset it
 *     RESP TIMEOUT       nothing complete arrived, or nothing could be sent, before the deadline
 *     RESP REFUSED       no connection could be made
 *     RESP MALFORMED     the bytes received are not RESP
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#if __has_include(<tcl8.6/tcl.h>)
#include <tcl8.6/tcl.h>
#else
#include <tcl.h>
#endif

enum {
    FIRST_BYTES = 65536, /* Size of the buffer of received bytes. */
    MOST_LEVELS = 1000,  /* Of nested arrays: each uses some of the stack. */
    SHOWN_BYTES = 80,    /* Received bytes that a message shows. */
    DENIALS = 2,         /* So many in a row end the wait for a reply. */
    LENGTH_DIGITS = 18,  /* A longer length does not fit 64 bits. */
};

/* A connection. Received bytes are between start and end; the reply being read began at mark. */
typedef struct {
    int socket;
    double seconds;
    Tcl_Obj *written_seconds; /* As the caller wrote them, for messages. */
    unsigned char *received;
    size_t size, mark, start, end;
    long long began;    /* When the current operation began, in milliseconds of the monotonic clock. */
    long long deadline; /* Of the current operation. */
    long long until;    /* How long to wait before the script of onSilence is asked; at most until the deadline. */
    int denials;        /* How often the script has denied in a row that the reply may still come. */
    int record;         /* Sent and received bytes are appended to this file, if it is not -1. */
    uint32_t number;    /* The connection's, in the record. */
    struct Client *client;
} Connection;

/* The connections by their names, and objects that every reply uses. */
typedef struct Client {
    Tcl_HashTable connections;
    unsigned made;
    int lost; /* Why a record is incomplete, as an error number; 0 if all are complete. */
    long long patience; /* Milliseconds before the script is asked; 0 if there is none. */
    Tcl_Obj *script;    /* Whether an awaited reply may still come. NULL while it runs, too. */
    Tcl_Obj *types[256]; /* By the first byte of a reply. */
    Tcl_Obj *null, *bulk, *array, *plain;
} Client;

/* --- Errors.
 * ----------------------------------------------------------------------------------------------------- */

static int fail(Tcl_Interp *interp, const char *code, Tcl_Obj *message)
{
    Tcl_SetErrorCode(interp, "RESP", code, (char *)NULL);
    Tcl_SetObjResult(interp, message);
    return TCL_ERROR;
}

static long long now(void)
{
    struct timespec moment;
    clock_gettime(CLOCK_MONOTONIC, &moment);
    return moment.tv_sec * 1000LL + moment.tv_nsec / 1000000;
}

static int fail_late(Tcl_Interp *interp, const Connection *connection, const char *action)
{
    const char *seconds = Tcl_GetString(connection->written_seconds);
    char waited[32];
    if (connection->until < connection->deadline) {
        /* The wait ended early. */
        snprintf(waited, sizeof waited, "%lld", (now() - connection->began) / 1000);
        seconds = waited;
    }
    return fail(interp, "TIMEOUT", Tcl_ObjPrintf("the server did not %s within %s seconds", action, seconds));
}

static int fail_closed(Tcl_Interp *interp, const Connection *connection)
{
    size_t bytes = connection->end - connection->mark;
    return fail(interp, "CLOSED",
                Tcl_ObjPrintf("connection closed by server (%lu bytes into a reply)", (unsigned long)bytes));
}

/* Appends received bytes to a text, up to SHOWN_BYTES of them. */
static void append_shown(Tcl_Obj *text, const unsigned char *bytes, size_t count)
{
    Tcl_Obj *shown = Tcl_NewByteArrayObj(bytes, count < SHOWN_BYTES ? (int)count : SHOWN_BYTES);
    Tcl_IncrRefCount(shown);
    Tcl_AppendObjToObj(text, shown);
    Tcl_DecrRefCount(shown);
}

static int fail_malformed(Tcl_Interp *interp, const char *what, const unsigned char *bytes, size_t count)
{
    Tcl_Obj *message = Tcl_ObjPrintf("%s: '", what);
    append_shown(message, bytes, count);
    Tcl_AppendToObj(message, "'", 1);
    return fail(interp, "MALFORMED", message);
}

/* --- Deadlines and bytes.
 * ---------------------------------------------------------------------------------------- */

static void begin(Connection *connection)
{
    connection->began = now();
    connection->until = connection->deadline = connection->began + (long long)(connection->seconds * 1000);
}

/* Waits at most this long before the script is asked. */
static void be_patient(Connection *connection)
{
    long long then = now() + connection->client->patience;
    connection->until = connection->client->script && then < connection->deadline ? then : connection->deadline;
}

/* Waits for events at the socket. False if they do not occur before the deadline. */
static bool await(const Connection *connection, short events)
{
    struct pollfd waited = {.fd = connection->socket, .events = events};
    int ready;
    do {
        long long left = connection->until - now();
        ready = poll(&waited, 1, left < 0 ? 0 : left > 1 << 30 ? 1 << 30 : (int)left);
    } while (ready < 0 && errno == EINTR);
    return ready != 0;
}

/* Makes room for the next bytes. The reply being read stays complete, for callers that need its bytes. */
static void make_room(Connection *connection)
{
    if (connection->mark > 0 && connection->mark >= connection->size / 2) {
        memmove(connection->received, connection->received + connection->mark,
                connection->end - connection->mark);
        connection->start -= connection->mark;
        connection->end -= connection->mark;
        connection->mark = 0;
    } else {
        connection->size = connection->size ? 2 * connection->size : FIRST_BYTES;
        connection->received =
            (unsigned char *)Tcl_Realloc((char *)connection->received, (unsigned)connection->size);
    }
}

/* Appends bytes to the connection's record, after the connection's number, 1 for a reply, and the length. */
static void record(Connection *connection, bool is_reply, const unsigned char *bytes, size_t count)
{
    uint32_t head[] = {connection->number, is_reply, (uint32_t)count};
    struct iovec parts[] = {{head, sizeof head}, {(void *)bytes, count}};
    if (connection->record < 0)
        return;
    ssize_t written = writev(connection->record, parts, 2);
    if (written < 0)
        connection->client->lost = errno;
    else if ((size_t)written != sizeof head + count)
        connection->client->lost = ENOSPC;
}

typedef enum { RECEIVED, NOTHING_YET, CLOSED } Receipt;

/* Receives what has arrived. */
static Receipt receive(Connection *connection)
{
    ssize_t count;
    if (connection->end == connection->size)
        make_room(connection);
    do
        count = recv(connection->socket, connection->received + connection->end,
                     connection->size - connection->end, MSG_DONTWAIT);
    while (count < 0 && errno == EINTR);
    if (count > 0) {
        record(connection, true, connection->received + connection->end, (size_t)count);
        connection->end += (size_t)count;
        return RECEIVED;
    }
    return count < 0 && errno == EAGAIN ? NOTHING_YET : CLOSED;
}

/* Whether to wait longer for a reply. The script uses connections of its own, for which it is not asked. */
static bool may_still_come(Tcl_Interp *interp, Connection *connection)
{
    Client *client = connection->client;
    Tcl_Obj *script = client->script;
    int may = 1;
    if (connection->until >= connection->deadline || !script)
        return false;
    client->script = NULL;
    if (Tcl_EvalObjEx(interp, script, TCL_EVAL_GLOBAL) == TCL_OK)
        Tcl_GetBooleanFromObj(NULL, Tcl_GetObjResult(interp), &may);
    Tcl_ResetResult(interp);
    client->script = script;
    connection->denials = may ? 0 : connection->denials + 1;
    if (connection->denials == DENIALS)
        return false;
    be_patient(connection);
    return true;
}

/* Receives some bytes of a reply, and waits for them if necessary. */
static int receive_more(Tcl_Interp *interp, Connection *connection)
{
    for (;;) {
        switch (receive(connection)) {
        case RECEIVED:
            return TCL_OK;
        case CLOSED:
            return fail_closed(interp, connection);
        case NOTHING_YET:
            if (!await(connection, POLLIN) && !may_still_come(interp, connection))
                return fail_late(interp, connection, "finish its reply");
        }
    }
}

static int send_all(Tcl_Interp *interp, Connection *connection, const unsigned char *bytes, size_t count)
{
    size_t sent = 0;
    begin(connection);
    while (sent < count) {
        ssize_t taken = send(connection->socket, bytes + sent, count - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        char action[100];
        if (taken >= 0) {
            /* Afterwards: a server that is gone has received nothing. */
            record(connection, false, bytes + sent, (size_t)taken);
            sent += (size_t)taken;
        } else if (errno == EAGAIN) {
            if (await(connection, POLLOUT))
                continue;
            snprintf(action, sizeof action, "take what was sent (%zu of %zu bytes sent)", sent, count);
            return fail_late(interp, connection, action);
        } else if (errno != EINTR) {
            return fail(interp, "CLOSED",
                        Tcl_ObjPrintf("connection closed by server while sending (%lu of %lu bytes sent)",
                                      (unsigned long)sent, (unsigned long)count));
        }
    }
    return TCL_OK;
}

/* --- Replies.
 * ---------------------------------------------------------------------------------------------------- */

/* Bytes as text. Tcl's internal form of text has other bytes for NUL and for characters beyond ASCII. */
static Tcl_Obj *text_of(const unsigned char *bytes, size_t count)
{
    for (size_t index = 0; index < count; index++)
        if (bytes[index] == 0 || bytes[index] >= 0x80)
            return Tcl_NewByteArrayObj(bytes, (int)count);
    return Tcl_NewStringObj((const char *)bytes, (int)count);
}

/* A list of two elements: a type or a format, and its value. */
static Tcl_Obj *pair(Tcl_Obj *first, Tcl_Obj *second)
{
    return Tcl_NewListObj(2, (Tcl_Obj *[]){first, second});
}

/* Reads a line. Its place in the buffer, without CRLF, is valid until more bytes are received. */
static int read_line(Tcl_Interp *interp, Connection *connection, const unsigned char **line, size_t *count)
{
    size_t searched = 0;
    for (;;) {
        const unsigned char *from = connection->received + connection->start;
        size_t there = connection->end - connection->start;
        const unsigned char *feed = there > searched ? memchr(from + searched, '\n', there - searched) : NULL;
        if (feed) {
            size_t length = (size_t)(feed - from);
            connection->start += length + 1;
            if (length == 0 || from[length - 1] != '\r')
                return fail_malformed(interp, "a line of a reply does not end in CRLF", from, length);
            *line = from;
            *count = length - 1;
            return TCL_OK;
        }
        searched = there;
        if (receive_more(interp, connection) != TCL_OK)
            return TCL_ERROR;
    }
}

/* Reads the length that a line has after its first byte. Only if `nullable`, it may be the -1 of a RESP2
 * null. */
static int read_length(Tcl_Interp *interp, const unsigned char *digits, size_t count, bool nullable,
                       long long *length)
{
    if (nullable && count == 2 && digits[0] == '-' && digits[1] == '1') {
        *length = -1;
        return TCL_OK;
    }
    *length = 0;
    for (size_t index = 0; index < count && count <= LENGTH_DIGITS; index++) {
        if (digits[index] < '0' || digits[index] > '9')
            return fail_malformed(interp, "a reply has the length", digits, count);
        *length = 10 * *length + digits[index] - '0';
    }
    return count == 0 || count > LENGTH_DIGITS
               ? fail_malformed(interp, "a reply has the length", digits, count)
               : TCL_OK;
}

/* Reads a number of bytes and the CRLF after them. Their place in the buffer is valid until more bytes are received.
 */
static int read_block(Tcl_Interp *interp, Connection *connection, size_t count, const unsigned char **block)
{
    while (connection->end - connection->start < count + 2)
        if (receive_more(interp, connection) != TCL_OK)
            return TCL_ERROR;
    *block = connection->received + connection->start;
    if ((*block)[count] != '\r' || (*block)[count + 1] != '\n')
        return fail_malformed(interp, "a block of bytes is followed by no CRLF, but by", *block + count, 2);
    connection->start += count + 2;
    return TCL_OK;
}

static int read_reply(Tcl_Interp *interp, Client *client, Connection *connection, int levels,
                      Tcl_Obj **reply);

/* Reads a number of replies, as a list. */
static int read_replies(Tcl_Interp *interp, Client *client, Connection *connection, int levels,
                        long long count, Tcl_Obj **replies)
{
    if (levels == 0)
        return fail(interp, "MALFORMED", Tcl_ObjPrintf("a reply has more than %d levels", MOST_LEVELS));
    *replies = Tcl_NewListObj(0, NULL);
    for (; count > 0; count--) {
        Tcl_Obj *element;
        if (read_reply(interp, client, connection, levels - 1, &element) != TCL_OK) {
            Tcl_DecrRefCount(*replies);
            return TCL_ERROR;
        }
        Tcl_ListObjAppendElement(NULL, *replies, element);
    }
    return TCL_OK;
}

/* Reads a reply that is a block of bytes. */
static int read_bytes(Tcl_Interp *interp, Client *client, Connection *connection, unsigned char kind,
                      size_t count, Tcl_Obj **reply)
{
    const unsigned char *block;
    if (read_block(interp, connection, count, &block) != TCL_OK)
        return TCL_ERROR;
    if (kind != '=') {
        *reply = pair(client->types[kind], Tcl_NewByteArrayObj(block, (int)count));
        return TCL_OK;
    }
    if (count < 4 || block[3] != ':')
        return fail_malformed(interp, "a verbatim text has no format", block, count);
    *reply =
        pair(client->types[kind], pair(text_of(block, 3), Tcl_NewByteArrayObj(block + 4, (int)count - 4)));
    return TCL_OK;
}

/* Reads attributes, and the reply to which they belong. */
static int read_attribute(Tcl_Interp *interp, Client *client, Connection *connection, int levels,
                          long long count, Tcl_Obj **reply)
{
    Tcl_Obj *attributes, *rest;
    if (read_replies(interp, client, connection, levels, 2 * count, &attributes) != TCL_OK)
        return TCL_ERROR;
    if (read_reply(interp, client, connection, levels - 1, &rest) != TCL_OK) {
        Tcl_DecrRefCount(attributes);
        return TCL_ERROR;
    }
    *reply = pair(client->types['|'], pair(attributes, rest));
    return TCL_OK;
}

static int read_reply(Tcl_Interp *interp, Client *client, Connection *connection, int levels, Tcl_Obj **reply)
{
    const unsigned char *line = NULL;
    size_t count = 0;
    long long length = 0;
    Tcl_Obj *elements;
    if (read_line(interp, connection, &line, &count) != TCL_OK)
        return TCL_ERROR;
    unsigned char kind = count ? line[0] : 0;
    switch (kind) {
    case '#':
        if (count != 2 || (line[1] != 't' && line[1] != 'f'))
            return fail_malformed(interp, "a boolean is neither t nor f", line, count);
        /* fallthrough */
    case '+':
    case '-':
    case ':':
    case ',':
    case '(':
        *reply = pair(client->types[kind], text_of(line + 1, count - 1));
        return TCL_OK;
    case '_':
        *reply = pair(client->null, client->plain);
        return TCL_OK;
    case '$':
    case '*':
    case '=':
    case '!':
    case '~':
    case '>':
    case '%':
    case '|':
        break;
    default:
        return fail_malformed(interp, "a reply begins with", line, count);
    }
    if (read_length(interp, line + 1, count - 1, kind == '$' || kind == '*', &length) != TCL_OK)
        return TCL_ERROR;
    if (length < 0) {
        *reply = pair(client->null, kind == '$' ? client->bulk : client->array);
        return TCL_OK;
    }
    if (kind == '$' || kind == '=' || kind == '!') {
        /* Tcl 8.6 counts the bytes of a value by an int. */
        if (length > INT_MAX - 2)
            return fail_malformed(interp, "Tcl holds no reply of the length", line + 1, count - 1);
        return read_bytes(interp, client, connection, kind, (size_t)length, reply);
    }
    if (kind == '|')
        return read_attribute(interp, client, connection, levels, length, reply);
    if (read_replies(interp, client, connection, levels, kind == '%' ? 2 * length : length, &elements) !=
        TCL_OK)
        return TCL_ERROR;
    *reply = pair(client->types[kind], elements);
    return TCL_OK;
}

/* --- Commands.
 * --------------------------------------------------------------------------------------------------- */

/* The open connection that is a command's first word. NULL, and an error, if it is closed, or if the command
 * does not have `wanted` words (at least two if `wanted` is 0). */
static Connection *opened(Tcl_Interp *interp, Client *client, int count, Tcl_Obj *const words[], int wanted,
                          const char *usage)
{
    if (count < 2 || (wanted && count != wanted)) {
        Tcl_WrongNumArgs(interp, 1, words, usage);
        return NULL;
    }
    Tcl_HashEntry *entry = Tcl_FindHashEntry(&client->connections, Tcl_GetString(words[1]));
    if (entry)
        return Tcl_GetHashValue(entry);
    fail(interp, "CLOSED", Tcl_ObjPrintf("connection %s is closed on this side", Tcl_GetString(words[1])));
    return NULL;
}

static void forget(Client *client, Tcl_Obj *name)
{
    Tcl_HashEntry *entry = Tcl_FindHashEntry(&client->connections, Tcl_GetString(name));
    if (!entry)
        return;
    Connection *connection = Tcl_GetHashValue(entry);
    close(connection->socket);
    if (connection->record >= 0)
        close(connection->record);
    Tcl_DecrRefCount(connection->written_seconds);
    Tcl_Free((char *)connection->received);
    Tcl_Free((char *)connection);
    Tcl_DeleteHashEntry(entry);
}

static Tcl_Obj *encoded(int count, Tcl_Obj *const words[])
{
    /* A word's length takes up to ten digits; around it and its bytes are five more. */
    size_t most = 16;
    int bytes;
    for (int index = 0; index < count; index++) {
        Tcl_GetByteArrayFromObj(words[index], &bytes);
        most += (size_t)bytes + 16;
    }
    Tcl_Obj *command = Tcl_NewByteArrayObj(NULL, 0);
    unsigned char *first = Tcl_SetByteArrayLength(command, (int)most), *next = first;
    next += sprintf((char *)next, "*%d\r\n", count);
    for (int index = 0; index < count; index++) {
        const unsigned char *word = Tcl_GetByteArrayFromObj(words[index], &bytes);
        next += sprintf((char *)next, "$%d\r\n", bytes);
        memcpy(next, word, (size_t)bytes);
        next += bytes;
        *next++ = '\r';
        *next++ = '\n';
    }
    Tcl_SetByteArrayLength(command, (int)(next - first));
    return command;
}

/* Reads one reply. Its bytes are between the connection's mark and start then. */
static int read_one(Tcl_Interp *interp, Client *client, Connection *connection, Tcl_Obj **reply)
{
    begin(connection);
    be_patient(connection);
    connection->denials = 0;
    if (connection->start == connection->end)
        connection->start = connection->end = 0;
    connection->mark = connection->start;
    return read_reply(interp, client, connection, MOST_LEVELS, reply);
}

static int return_reply(Tcl_Interp *interp, Client *client, Connection *connection)
{
    Tcl_Obj *reply;
    if (read_one(interp, client, connection, &reply) != TCL_OK)
        return TCL_ERROR;
    Tcl_SetObjResult(interp, reply);
    return TCL_OK;
}

static int send_object(Tcl_Interp *interp, Connection *connection, Tcl_Obj *object)
{
    int count;
    const unsigned char *bytes = Tcl_GetByteArrayFromObj(object, &count);
    return send_all(interp, connection, bytes, (size_t)count);
}

/* What happens to the connection: one of the three results of `closing`. */
static Tcl_Obj *course_of(Connection *connection)
{
    Receipt receipt;
    begin(connection);
    connection->mark = connection->start;
    while ((receipt = receive(connection)) == NOTHING_YET && connection->start == connection->end)
        if (!await(connection, POLLIN))
            return Tcl_ObjPrintf("open after %s seconds", Tcl_GetString(connection->written_seconds));
    while (receipt == RECEIVED)
        receipt = receive(connection);
    size_t count = connection->end - connection->start;
    if (count == 0)
        return Tcl_NewStringObj("closed", -1);
    Tcl_Obj *course = Tcl_ObjPrintf("sent %lu more bytes: ", (unsigned long)count);
    append_shown(course, connection->received + connection->start, count);
    connection->start = connection->end;
    return course;
}

/* Connects a socket before the deadline. Returns 0 or an error number; ETIMEDOUT if the deadline passed.
 */
static int connect_socket(Connection *connection, const struct sockaddr *address, socklen_t bytes)
{
    connection->socket = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (connection->socket < 0)
        return errno;
    int problem = connect(connection->socket, address, bytes) == 0 ? 0 : errno;
    while (problem == EAGAIN && now() < connection->until) {
        /* The queue of a Unix socket is full, for which poll(2) does not wait. */
        poll(NULL, 0, 1);
        problem = connect(connection->socket, address, bytes) == 0 ? 0 : errno;
    }
    if (problem == EINPROGRESS) {
        socklen_t size = sizeof problem;
        problem = ETIMEDOUT;
        if (await(connection, POLLOUT) &&
            getsockopt(connection->socket, SOL_SOCKET, SO_ERROR, &problem, &size) != 0)
            problem = errno;
    }
    if (problem != 0)
        close(connection->socket);
    return problem == EAGAIN ? ETIMEDOUT : problem;
}

/* Connects to an endpoint. Returns an error's text, or NULL. `why` becomes the error's number, if it has one:
 * ETIMEDOUT if the deadline passed.
 */
static const char *connect_endpoint(Connection *connection, const char *endpoint, int *why)
{
    int problem = EADDRNOTAVAIL;
    if (endpoint[0] == '/') {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        if (strlen(endpoint) >= sizeof address.sun_path)
            return strerror(ENAMETOOLONG);
        strcpy(address.sun_path, endpoint);
        problem = connect_socket(connection, (struct sockaddr *)&address, sizeof address);
    } else {
        /* The last colon divides, and the brackets around an IPv6 address are not part of it. */
        const char *colon = strrchr(endpoint, ':');
        bool bracketed = colon && colon - endpoint > 1 && endpoint[0] == '[' && colon[-1] == ']';
        char host[256];
        if (!colon || (size_t)(colon - endpoint) >= sizeof host)
            return "an endpoint is HOST:PORT, or the absolute path of a socket";
        snprintf(host, sizeof host, "%.*s", (int)(colon - endpoint) - 2 * bracketed, endpoint + bracketed);
        struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
        int unknown = getaddrinfo(host, colon + 1, &hints, &found);
        if (unknown)
            return gai_strerror(unknown);
        for (struct addrinfo *one = found; one; one = one->ai_next)
            if ((problem = connect_socket(connection, one->ai_addr, one->ai_addrlen)) == 0)
                break;
        freeaddrinfo(found);
        if (problem == 0)
            setsockopt(connection->socket, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    }
    *why = problem;
    return problem ? strerror(problem) : NULL;
}

/* The client's view through a recording proxy whose server is gone: a closed connection. */
static const char *connect_nowhere(Connection *connection)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
        return strerror(errno);
    close(ends[1]);
    connection->socket = ends[0];
    return NULL;
}

static int connect_command(ClientData data, Tcl_Interp *interp, int count, Tcl_Obj *const words[])
{
    Client *client = data;
    double seconds;
    int why = 0, new;
    if (count != 3 && count != 4) {
        Tcl_WrongNumArgs(interp, 1, words, "endpoint seconds ?record?");
        return TCL_ERROR;
    }
    if (Tcl_GetDoubleFromObj(interp, words[2], &seconds) != TCL_OK)
        return TCL_ERROR;
    Connection connection = {
        .seconds = seconds,
        .written_seconds = words[2],
        .record = -1,
        .number = client->made + 1,
        .client = client,
    };
    begin(&connection);
    const char *endpoint = Tcl_GetString(words[1]);
    const char *problem = connect_endpoint(&connection, endpoint, &why);
    bool gone = why == ECONNREFUSED || why == ENOENT;
    if (count == 4 && gone)
        problem = connect_nowhere(&connection);
    if (why == ETIMEDOUT)
        return fail_late(interp, &connection, "accept a connection");
    if (problem)
        return fail(interp, "REFUSED", Tcl_ObjPrintf("cannot connect to %s: %s", endpoint, problem));
    /* A server that is gone does not receive what is sent. */
    if (count == 4 && !gone) {
        connection.record = open(Tcl_GetString(words[3]), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        if (connection.record < 0)
            client->lost = errno;
    }
    Connection *opened_one = (Connection *)Tcl_Alloc(sizeof *opened_one);
    *opened_one = connection;
    Tcl_IncrRefCount(opened_one->written_seconds);
    Tcl_Obj *name = Tcl_ObjPrintf("connection%u", ++client->made);
    Tcl_SetHashValue(Tcl_CreateHashEntry(&client->connections, Tcl_GetString(name), &new), opened_one);
    Tcl_SetObjResult(interp, name);
    return TCL_OK;
}

static int lost_command(ClientData data, Tcl_Interp *interp, int count, Tcl_Obj *const words[])
{
    const Client *client = data;
    (void)count, (void)words;
    Tcl_SetObjResult(interp, Tcl_NewStringObj(client->lost ? strerror(client->lost) : "", -1));
    return TCL_OK;
}

static int on_silence_command(ClientData data, Tcl_Interp *interp, int count, Tcl_Obj *const words[])
{
    Client *client = data;
    double seconds;
    if (count != 3) {
        Tcl_WrongNumArgs(interp, 1, words, "seconds script");
        return TCL_ERROR;
    }
    if (Tcl_GetDoubleFromObj(interp, words[1], &seconds) != TCL_OK)
        return TCL_ERROR;
    if (client->script)
        Tcl_DecrRefCount(client->script);
    client->patience = (long long)(seconds * 1000);
    client->script = words[2];
    Tcl_IncrRefCount(client->script);
    return TCL_OK;
}

static int encode_command(ClientData data, Tcl_Interp *interp, int count, Tcl_Obj *const words[])
{
    (void)data;
    Tcl_SetObjResult(interp, encoded(count - 1, words + 1));
    return TCL_OK;
}

static int close_command(ClientData data, Tcl_Interp *interp, int count, Tcl_Obj *const words[])
{
    if (count != 2) {
        Tcl_WrongNumArgs(interp, 1, words, "connection");
        return TCL_ERROR;
    }
    forget(data, words[1]);
    return TCL_OK;
}

static int send_command(ClientData data, Tcl_Interp *interp, int count, Tcl_Obj *const words[])
{
    Connection *connection = opened(interp, data, count, words, 3, "connection bytes");
    return connection ? send_object(interp, connection, words[2]) : TCL_ERROR;
}

static int call_command(ClientData data, Tcl_Interp *interp, int count, Tcl_Obj *const words[])
{
    Connection *connection = opened(interp, data, count, words, 0, "connection ?argument ...?");
    if (!connection)
        return TCL_ERROR;
    Tcl_Obj *command = encoded(count - 2, words + 2);
    Tcl_IncrRefCount(command);
    int result = send_object(interp, connection, command);
    Tcl_DecrRefCount(command);
    return result == TCL_OK ? return_reply(interp, data, connection) : result;
}

static int reply_command(ClientData data, Tcl_Interp *interp, int count, Tcl_Obj *const words[])
{
    Connection *connection = opened(interp, data, count, words, 2, "connection");
    return connection ? return_reply(interp, data, connection) : TCL_ERROR;
}

static int reply_bytes_command(ClientData data, Tcl_Interp *interp, int count, Tcl_Obj *const words[])
{
    Connection *connection = opened(interp, data, count, words, 2, "connection");
    Tcl_Obj *reply;
    if (!connection || read_one(interp, data, connection, &reply) != TCL_OK)
        return TCL_ERROR;
    Tcl_DecrRefCount(reply);
    int bytes = (int)(connection->start - connection->mark);
    Tcl_SetObjResult(interp, Tcl_NewByteArrayObj(connection->received + connection->mark, bytes));
    return TCL_OK;
}

static int closing_command(ClientData data, Tcl_Interp *interp, int count, Tcl_Obj *const words[])
{
    Connection *connection = opened(interp, data, count, words, 2, "connection");
    if (!connection)
        return TCL_ERROR;
    Tcl_SetObjResult(interp, course_of(connection));
    return TCL_OK;
}

static int hang_up_command(ClientData data, Tcl_Interp *interp, int count, Tcl_Obj *const words[])
{
    Connection *connection = opened(interp, data, count, words, 2, "connection");
    Tcl_Obj *course = NULL;
    if (!connection)
        return TCL_ERROR;
    /* The server may already have closed it. */
    shutdown(connection->socket, SHUT_WR);
    do {
        if (course)
            Tcl_DecrRefCount(course);
        course = course_of(connection);
        Tcl_IncrRefCount(course);
    } while (strncmp(Tcl_GetString(course), "sent ", 5) == 0);
    forget(data, words[1]);
    int result = TCL_OK;
    if (strcmp(Tcl_GetString(course), "closed") != 0) {
        const char *message = "timed out waiting for the server to close a connection that was hung up";
        result = fail(interp, "TIMEOUT", Tcl_ObjPrintf("%s: %s", message, Tcl_GetString(course)));
    }
    Tcl_DecrRefCount(course);
    return result;
}

static Tcl_Obj *kept(const char *text)
{
    Tcl_Obj *object = Tcl_NewStringObj(text, -1);
    Tcl_IncrRefCount(object);
    return object;
}

int Resp_Init(Tcl_Interp *interp)
{
    static const struct {
        const char *name;
        Tcl_ObjCmdProc *run;
    } commands[] = {
        {"::resp::connect", connect_command}, {"::resp::send", send_command},
        {"::resp::encode", encode_command},   {"::resp::reply", reply_command},
        {"::resp::call", call_command},       {"::resp::replyBytes", reply_bytes_command},
        {"::resp::close", close_command},     {"::resp::closing", closing_command},
        {"::resp::hangUp", hang_up_command},  {"::resp::lost", lost_command},
        {"::resp::onSilence", on_silence_command},
    };
    static const struct {
        unsigned char first;
        const char *name;
    } types[] = {
        {'+', "simple"},    {'-', "error"},    {':', "integer"},   {'$', "bulk"},      {'*', "array"},
        {'~', "set"},       {'>', "push"},     {'%', "map"},       {',', "double"},    {'#', "boolean"},
        {'(', "bignumber"}, {'=', "verbatim"}, {'!', "bloberror"}, {'|', "attribute"},
    };
    if (!Tcl_InitStubs(interp, "8.6", 0))
        return TCL_ERROR;
    Client *client = (Client *)Tcl_Alloc(sizeof *client);
    client->made = 0;
    client->lost = 0;
    client->patience = 0;
    client->script = NULL;
    Tcl_InitHashTable(&client->connections, TCL_STRING_KEYS);
    for (size_t index = 0; index < sizeof types / sizeof *types; index++)
        client->types[types[index].first] = kept(types[index].name);
    client->null = kept("null");
    client->bulk = kept("bulk");
    client->array = kept("array");
    client->plain = kept("plain");
    for (size_t index = 0; index < sizeof commands / sizeof *commands; index++)
        Tcl_CreateObjCommand(interp, commands[index].name, commands[index].run, client, NULL);
    return TCL_OK;
}
