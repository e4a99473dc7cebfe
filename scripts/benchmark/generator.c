/* A load generator for DNS over UDP, TCP and TLS: closed loop, or at a fixed rate, with sendmmsg and recvmmsg.
 *
 *     generator HOST PORT FILE SECONDS WINDOW SOCKETS RATE udp|tcp|tls|once|tls-once
 *
 * FILE has queries, each after its length in two bytes, most significant first. A socket has WINDOW/SOCKETS
 * queries under way; for each reply the next goes out. RATE 0 is as fast as replies come, otherwise queries a
 * second. What has no reply after LOSS_MS is lost and its place is filled again. TCP pipelines on kept-open
 * connections, and so does TLS, whose certificates are not looked at; once is a TCP connection for each query, and
 * tls-once a TLS connection for each, with a whole handshake: no session is kept to be resumed. Latency is from when a
 * query is sent, so without connecting. Prints one line of JSON, also when SIGTERM ends it early; a reply must have
 * the ID of a query under way and QR set. TLS needs -DTLS, -lssl and -lcrypto.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#ifdef TLS
#include <openssl/ssl.h>
#endif

#define BATCH 64
#define MAX_SOCKETS 64
#define QUERY 1024
#define REPLY 4096
#define LOSS_MS 200
#define BUCKETS 100000 /* of latency, a microsecond each */

enum { UDP, TCP, SECURE, ONCE, SECURE_ONCE };
#define IS_TLS(how) ((how) == SECURE || (how) == SECURE_ONCE)
#define IS_ONCE(how) ((how) == ONCE || (how) == SECURE_ONCE)

struct client {
    int fd;
#ifdef TLS
    SSL *tls;
#endif
    uint16_t next_id;
    int under_way, connecting; /* events to poll for until connected, or 0 */
    int64_t heard;
    uint8_t *stream; /* TCP: the start of an incomplete message */
    size_t held;
};

static uint8_t *octets, **queries;
static uint16_t *lengths;
static size_t count, next_query;
static int64_t *sent_at; /* by socket and ID; 0: not in flight */
static uint64_t sent, received, lost, strange, latency[BUCKETS + 1], rcodes[16];

static volatile sig_atomic_t stopped;

static void stop(int number) {
    stopped = number;
}

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void read_queries(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) die(path);
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    octets = malloc(size);
    if (fread(octets, 1, size, file) != (size_t)size) die(path);
    fclose(file);
    queries = malloc(size * sizeof *queries / 14 + 8);
    lengths = malloc(size * sizeof *lengths / 14 + 8);
    for (long at = 0; at + 2 < size; count++) {
        lengths[count] = octets[at] << 8 | octets[at + 1];
        queries[count] = octets + at + 2;
        at += 2 + lengths[count];
        if (lengths[count] < 12 || lengths[count] > QUERY || at > size) {
            fprintf(stderr, "%s: a query of a wrong length\n", path);
            exit(1);
        }
    }
    if (!count) exit(1);
}

static void take(struct client *c, int index, const uint8_t *reply, size_t length) {
    uint16_t id = reply[0] << 8 | reply[1];
    int64_t *at = sent_at + ((size_t)index << 16) + id;
    if (length < 12 || !(reply[2] & 0x80) || !*at) {
        strange++;
        return;
    }
    int64_t took = (c->heard - *at) / 1000;
    latency[took < BUCKETS ? took : BUCKETS]++;
    *at = 0;
    c->under_way--;
    received++;
    rcodes[reply[3] & 15]++;
}

/* Write the next query, with a unique ID, into a buffer. */
static size_t fill(struct client *c, int index, uint8_t *buffer, int64_t t) {
    size_t length = lengths[next_query];
    memcpy(buffer, queries[next_query], length);
    next_query = next_query + 1 == count ? 0 : next_query + 1;
    uint16_t id = c->next_id++;
    buffer[0] = id >> 8;
    buffer[1] = id & 255;
    sent_at[((size_t)index << 16) + id] = t;
    return length;
}

static ssize_t receive(struct client *c, int how) {
#ifdef TLS
    if (IS_TLS(how)) {
        int r = SSL_read(c->tls, c->stream + c->held, 1 << 17);
        if (r > 0) return r;
        return SSL_get_error(c->tls, r) == SSL_ERROR_WANT_READ ? -1 : 0;
    }
#endif
    (void)how;
    return recv(c->fd, c->stream + c->held, 1 << 17, MSG_DONTWAIT);
}

static ssize_t transmit(struct client *c, const uint8_t *data, size_t size, int how) {
#ifdef TLS
    if (IS_TLS(how)) {
        int w = SSL_write(c->tls, data, size);
        if (w > 0) return w;
        if (SSL_get_error(c->tls, w) != SSL_ERROR_WANT_WRITE) return -1;
        struct pollfd full = {c->fd, POLLOUT, 0};
        poll(&full, 1, LOSS_MS);
        return 0;
    }
#endif
    (void)how;
    return send(c->fd, data, size, MSG_NOSIGNAL);
}

/* Connect as far as possible without blocking. */
static void go_on_connecting(struct client *c, int how) {
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &size) || error) {
        errno = error ? error : errno;
        die("connect");
    }
    c->connecting = 0;
#ifdef TLS
    if (!IS_TLS(how)) return;
    int r = SSL_connect(c->tls), wants = SSL_get_error(c->tls, r);
    if (r == 1) return;
    c->connecting = wants == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
    if (wants != SSL_ERROR_WANT_READ && wants != SSL_ERROR_WANT_WRITE) {
        fprintf(stderr, "no TLS\n");
        exit(1);
    }
#else
    (void)how;
#endif
}

static void open_client(struct client *c, int index, const struct sockaddr_in *to, int how) {
    int size = 4 << 20, one = 1;
    c->fd = socket(AF_INET, how == UDP ? SOCK_DGRAM : SOCK_STREAM, 0);
    if (IS_ONCE(how)) { /* one address each: a single one has fewer ports than a round has connections */
        struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1 + index)};
        setsockopt(c->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
        if (bind(c->fd, (struct sockaddr *)&from, sizeof from)) die("bind");
        struct linger at_once = {1, 0}; /* no TIME_WAIT; TLS ends as it should, and makes fewer */
        if (how == ONCE) setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        fcntl(c->fd, F_SETFL, fcntl(c->fd, F_GETFL) | O_NONBLOCK); /* a lost SYN must not delay other connections */
    } else
        setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    c->connecting = connect(c->fd, (const struct sockaddr *)to, sizeof *to) ? POLLOUT : 0;
    if (c->connecting && (!IS_ONCE(how) || errno != EINPROGRESS)) die("connect");
    if (how != UDP) setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (!IS_TLS(how)) return;
#ifdef TLS
    static SSL_CTX *context;
    if (!context) context = SSL_CTX_new(TLS_client_method());
    c->tls = SSL_new(context);
    SSL_set_fd(c->tls, c->fd);
    if (!c->connecting) go_on_connecting(c, how);
    fcntl(c->fd, F_SETFL, fcntl(c->fd, F_GETFL) | O_NONBLOCK);
#else
    fprintf(stderr, "made without TLS\n");
    exit(1);
#endif
}

static void close_client(struct client *c, int how) {
#ifdef TLS
    if (IS_TLS(how)) {
        SSL_shutdown(c->tls);
        SSL_free(c->tls);
    }
#else
    (void)how;
#endif
    close(c->fd);
    c->held = 0;
}

static void push(struct client *c, int index, int number, int how) {
    static uint8_t buffers[BATCH][QUERY + 2], flat[BATCH * (QUERY + 2)];
    static struct mmsghdr messages[BATCH];
    static struct iovec parts[BATCH];
    int64_t t = now();
    while (number > 0) {
        int n = number < BATCH ? number : BATCH;
        if (how != UDP) {
            size_t size = 0;
            for (int i = 0; i < n; i++) {
                size_t length = fill(c, index, flat + size + 2, t);
                flat[size] = length >> 8;
                flat[size + 1] = length & 255;
                size += length + 2;
            }
            for (size_t done = 0; done < size;) {
                ssize_t w = transmit(c, flat + done, size - done, how);
                if (w < 0) die("send");
                done += w;
            }
        } else {
            for (int i = 0; i < n; i++) {
                parts[i].iov_base = buffers[i];
                parts[i].iov_len = fill(c, index, buffers[i], t);
                messages[i].msg_hdr.msg_iov = parts + i;
                messages[i].msg_hdr.msg_iovlen = 1;
            }
            for (int done = 0; done < n;) {
                int w = sendmmsg(c->fd, messages + done, n - done, 0);
                if (w < 0 && errno != ECONNREFUSED && errno != EINTR) die("sendmmsg");
                if (w > 0) done += w;
            }
        }
        c->under_way += n;
        sent += n;
        number -= n;
    }
}

static void pull(struct client *c, int index, int how, const struct sockaddr_in *to) {
    static uint8_t buffers[BATCH][REPLY];
    static struct mmsghdr messages[BATCH];
    static struct iovec parts[BATCH];
    if (how != UDP) {
        ssize_t r = receive(c, how);
        if (r == 0) {
            fprintf(stderr, "the server closed a connection\n");
            exit(1);
        }
        if (r < 0) return;
        c->heard = now();
        do c->held += r; /* OpenSSL may hold what poll cannot see */
        while (IS_TLS(how) && c->held < 1 << 18 && (r = receive(c, how)) > 0);
        size_t at = 0;
        while (c->held - at >= 2) {
            size_t length = c->stream[at] << 8 | c->stream[at + 1];
            if (c->held - at < 2 + length) break;
            take(c, index, c->stream + at + 2, length);
            at += 2 + length;
        }
        memmove(c->stream, c->stream + at, c->held - at);
        c->held -= at;
        if (IS_ONCE(how) && at) close_client(c, how), open_client(c, index, to, how);
        return;
    }
    for (int i = 0; i < BATCH; i++) {
        parts[i].iov_base = buffers[i];
        parts[i].iov_len = REPLY;
        messages[i].msg_hdr.msg_iov = parts + i;
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    int n = recvmmsg(c->fd, messages, BATCH, MSG_DONTWAIT, NULL);
    if (n <= 0) return;
    c->heard = now();
    for (int i = 0; i < n; i++) take(c, index, buffers[i], messages[i].msg_len);
}

static uint64_t percentile(double share) {
    uint64_t wanted = received * share, seen = 0;
    for (int i = 0; i <= BUCKETS; i++)
        if ((seen += latency[i]) > wanted) return i;
    return BUCKETS;
}

int main(int argc, char **argv) {
    if (argc != 9) {
        fprintf(stderr, "usage: %s HOST PORT FILE SECONDS WINDOW SOCKETS RATE udp|tcp|tls|once|tls-once\n", argv[0]);
        return 2;
    }
    double seconds = atof(argv[4]), rate = atof(argv[7]);
    int window = atoi(argv[5]), sockets = atoi(argv[6]);
    static const char *const ways[] = {"udp", "tcp", "tls", "once", "tls-once"};
    int how = UDP;
    while (how <= SECURE_ONCE && strcmp(argv[8], ways[how])) how++;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
    if (inet_pton(AF_INET, argv[1], &to.sin_addr) != 1 || sockets < 1 || sockets > MAX_SOCKETS || window < sockets ||
        how > SECURE_ONCE) {
        fprintf(stderr, "a wrong HOST, WINDOW, number of SOCKETS or way\n");
        return 2;
    }
    signal(SIGTERM, stop);
    read_queries(argv[3]);
    static struct client clients[MAX_SOCKETS];
    struct pollfd polled[MAX_SOCKETS];
    sent_at = calloc((size_t)sockets << 16, sizeof *sent_at);
    int share = IS_ONCE(how) ? 1 : window / sockets;
    for (int i = 0; i < sockets; i++) {
        struct client *c = clients + i;
        open_client(c, i, &to, how);
        c->stream = malloc(1 << 19);
        polled[i] = (struct pollfd){c->fd, POLLIN, 0};
    }
    int64_t start = now(), end = start + (int64_t)(seconds * 1e9), t = start;
    if (rate == 0)
        for (int i = 0; i < sockets; i++)
            if (clients[i].heard = t, !clients[i].connecting) push(clients + i, i, share, how);
    for (uint64_t planned = 0; (t = now()) < end && !stopped;) {
        if (rate > 0) {
            uint64_t due = (t - start) * rate / 1e9;
            int n = due - planned > BATCH ? BATCH : due - planned;
            if (n > 0) push(clients + planned % sockets, planned % sockets, n, how);
            planned = due;
            poll(polled, sockets, 0);
        } else {
            for (int i = 0; i < sockets; i++) polled[i].events = clients[i].connecting ? clients[i].connecting : POLLIN;
            poll(polled, sockets, LOSS_MS / 4);
        }
        for (int i = 0; i < sockets; i++) {
            struct client *c = clients + i;
            if (c->connecting) {
                if (polled[i].revents) go_on_connecting(c, how);
                c->heard = now();
                if (c->connecting) continue;
            } else if (polled[i].revents) pull(c, i, how, &to), polled[i].fd = c->fd;
            if (rate > 0) continue;
            if (c->under_way && now() - c->heard > LOSS_MS * 1000000LL) {
                lost += c->under_way;
                c->under_way = 0;
                c->heard = now();
                memset(sent_at + ((size_t)i << 16), 0, sizeof *sent_at << 16);
            }
            if (c->under_way < share && !c->connecting) push(c, i, share - c->under_way, how);
        }
    }
    double took = (now() - start) / 1e9;
    /* Queries in flight at the end are neither lost nor answered; at a fixed rate, wait a moment for them. */
    if (rate > 0) {
        usleep(100000);
        for (int i = 0; i < sockets; i++)
            for (int k = 0; k < 64; k++) pull(clients + i, i, how, &to);
        lost = sent - received;
    }
    printf("{\"sent\": %lu, \"received\": %lu, \"lost\": %lu, \"strange\": %lu, \"seconds\": %.6f, "
           "\"p50\": %lu, \"p99\": %lu, \"noerror\": %lu, \"nxdomain\": %lu, \"refused\": %lu}\n",
           sent, received, lost, strange, took, percentile(0.5), percentile(0.99), rcodes[0], rcodes[3], rcodes[5]);
    return 0;
}
