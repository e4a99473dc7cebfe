/* The floor: every datagram back with QR set, by recvmmsg and sendmmsg, 64 a call, on 127.0.0.1.
 *
 *     echo PORT [TAIL [PROCESSES]]
 *
 * TAIL zero octets go behind each, as an answer has its records. PROCESSES have a socket each (SO_REUSEPORT).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define BATCH 64
#define SLOT 4096

int main(int argc, char **argv) {
    static unsigned char slots[BATCH][SLOT], zeros[SLOT];
    static struct sockaddr_in names[BATCH];
    static struct iovec parts[BATCH][2];
    static struct mmsghdr messages[BATCH];
    int tail = argc > 2 ? atoi(argv[2]) : 0, others = argc > 3 ? atoi(argv[3]) - 1 : 0;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(argc > 1 ? atoi(argv[1]) : 0)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (tail < 0 || tail > SLOT) return 2;
    while (others-- > 0 && fork());
    int size = 4 << 20, one = 1, fd = socket(AF_INET, SOCK_DGRAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    if (argc > 3) setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&at, sizeof at)) return 1;
    for (;;) {
        for (int i = 0; i < BATCH; i++) {
            parts[i][0] = (struct iovec){slots[i], SLOT};
            messages[i].msg_hdr = (struct msghdr){names + i, sizeof names[i], parts[i], 1, 0, 0, 0};
        }
        int n = recvmmsg(fd, messages, BATCH, MSG_WAITFORONE, 0);
        for (int i = 0; i < n; i++) {
            parts[i][0].iov_len = messages[i].msg_len;
            parts[i][1] = (struct iovec){zeros, tail};
            messages[i].msg_hdr.msg_iovlen = tail ? 2 : 1;
            slots[i][2] |= 0x80;
        }
        if (n > 0) sendmmsg(fd, messages, n, 0);
    }
}
