/* Reports and heartbeats of a fleet at a constant rate, over one connection a node; prints one JSON object.
 *
 * load_generator FILE PORT INTERVAL_S SECONDS JOIN_S SPREAD_S
 *
 * FILE, little endian, as `bench.fleet.load_generator` writes it: for each node uint32 address and two requests, its report
 * and its heartbeat: uint32 bytes, uint32 count of fields, fields {uint32 offset, uint32 width, int32 kind, int32 argument},
 * the request. Fields are numbers that change with every request: in JSON padded with spaces, in a heartbeat as they are
 * packed. A node sends its report until the answer names it as the base of heartbeats, and again after a 409. Without a
 * heartbeat (0 bytes) it only reports.
 *
 * The load is open: a report is due at its time whether or not the one before was answered, and its latency begins when it
 * is due. How late the generator itself sent is measured apart. What is due before JOIN_S is sent and not counted. The first
 * reports are due within SPREAD_S: 0 is a fleet that connects at one moment.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { SEQUENCE, NOW, STEP, WINDOW, PACKED_SEQUENCE, PACKED_BASE, PACKED_NOW, RANK_STEP, RANK_NOW, WINDOW_NUMBER };
enum { REPORT, HEARTBEAT };
enum { READ_BYTES = 1 << 14, BUCKETS = 200000, BUCKET_NS = 100000 }; /* 0.1 ms up to 20 s */
static const double STEP_S = 1.2, STEPS_PER_WINDOW = 4;

struct field { uint32_t offset, width; int32_t kind, argument; };
struct request { uint32_t length, fields; struct field *field; char *bytes; };
struct node {
    uint32_t address, sent, got, waiting; /* waiting: reports due while one is unanswered */
    struct request requests[2], *current;
    char answer[2048];
    int socket, busy, connected;
    int64_t due, next, sequence, base; /* base: the report that heartbeats update, 0 for none */
};

static struct node *nodes;
static uint32_t count;
static int events, port;
static uint64_t latency[BUCKETS + 1], lateness[BUCKETS + 1];
static uint64_t sent, answered, refused, broken, whole;
static int64_t begun, counted_from, interval;

static int64_t now_ns(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static void die(const char *what) {
    fprintf(stderr, "load_generator: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void count_ns(uint64_t *histogram, int64_t ns) {
    int64_t bucket = ns < 0 ? 0 : ns / BUCKET_NS;
    histogram[bucket > BUCKETS ? BUCKETS : bucket]++;
}

static double quantile_ms(const uint64_t *histogram, double share) {
    uint64_t total = 0, seen = 0;
    for (int i = 0; i <= BUCKETS; i++) total += histogram[i];
    for (int i = 0; i <= BUCKETS; i++)
        if (total && (seen += histogram[i]) >= share * total) return (i + 1) * (BUCKET_NS / 1e6);
    return 0;
}

static void read_nodes(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file || fread(&count, 4, 1, file) != 1) die(path);
    nodes = calloc(count, sizeof *nodes);
    if (!nodes) die("memory");
    for (uint32_t i = 0; i < count; i++) {
        struct node *node = &nodes[i];
        node->socket = -1;
        if (fread(&node->address, 4, 1, file) != 1) die(path);
        for (int kind = REPORT; kind <= HEARTBEAT; kind++) {
            struct request *request = &node->requests[kind];
            if (fread(request, 4, 2, file) != 2) die(path);
            request->field = malloc(request->fields * sizeof *request->field + 1);
            request->bytes = malloc(request->length + 1);
            if (!request->field || !request->bytes) die("memory");
            if (fread(request->field, sizeof *request->field, request->fields, file) != request->fields) die(path);
            if (fread(request->bytes, 1, request->length, file) != request->length) die(path);
        }
    }
    fclose(file);
}

static void connect_node(struct node *node) {
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(node->address)};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1;
    node->socket = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (node->socket < 0) die("socket");
    setsockopt(node->socket, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    setsockopt(node->socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (bind(node->socket, (struct sockaddr *)&from, sizeof from)) die("bind");
    if (connect(node->socket, (struct sockaddr *)&to, sizeof to) && errno != EINPROGRESS) die("connect");
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.ptr = node};
    if (epoll_ctl(events, EPOLL_CTL_ADD, node->socket, &event)) die("epoll");
    node->connected = 0;
}

static void want(struct node *node, uint32_t what) {
    struct epoll_event event = {.events = what, .data.ptr = node};
    epoll_ctl(events, EPOLL_CTL_MOD, node->socket, &event);
}

static void fill_text(char *place, int width, int kind, const struct node *node, double wall, int64_t step, int argument) {
    char text[64];
    int64_t window = step / (int64_t)STEPS_PER_WINDOW + argument;
    int64_t value = kind == SEQUENCE ? node->sequence : kind == STEP ? step : window * (int64_t)STEPS_PER_WINDOW;
    if (kind == NOW) snprintf(text, sizeof text, "%*.*f", width, 3, wall);
    else snprintf(text, sizeof text, "%*lld", width, (long long)value);
    memcpy(place, text, width);
}

static void fill_packed(char *place, int kind, const struct node *node, double wall, int64_t step, int argument) {
    uint64_t number;
    uint32_t window = (uint32_t)(step / (int64_t)STEPS_PER_WINDOW + argument);
    memcpy(&number, &wall, 8);
    if (kind == PACKED_NOW) number = htobe64(number);
    if (kind == PACKED_SEQUENCE) number = htobe64(node->sequence);
    if (kind == PACKED_BASE) number = htobe64(node->base);
    if (kind == RANK_STEP) number = htole64(step);
    if (kind == WINDOW_NUMBER) memcpy(place, &window, 4);
    else memcpy(place, &number, 8);
}

static void fill_fields(struct node *node) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t step = (int64_t)((now.tv_sec % 1000000) / STEP_S);
    double wall = now.tv_sec + now.tv_nsec / 1e9;
    node->sequence++;
    for (uint32_t i = 0; i < node->current->fields; i++) {
        struct field *field = &node->current->field[i];
        char *place = node->current->bytes + field->offset;
        if (field->kind <= WINDOW) fill_text(place, field->width, field->kind, node, wall, step, field->argument);
        else fill_packed(place, field->kind, node, wall, step, field->argument);
    }
}

static void drop(struct node *node) {
    if (node->busy && node->due >= counted_from) broken++;
    close(node->socket); /* epoll forgets it */
    node->socket = -1;
    node->busy = 0;
}

static void push(struct node *node) {
    struct request *request = node->current;
    while (node->sent < request->length) {
        ssize_t part = send(node->socket, request->bytes + node->sent, request->length - node->sent, MSG_NOSIGNAL);
        if (part < 0 && (errno == EAGAIN || errno == EINTR)) { want(node, EPOLLIN | EPOLLOUT); return; }
        if (part < 0) { drop(node); return; }
        node->sent += part;
    }
    want(node, EPOLLIN);
}

static void start(struct node *node, int64_t due) {
    if (node->socket < 0) connect_node(node);
    node->busy = 1, node->due = due, node->sent = node->got = 0;
    node->current = &node->requests[node->base ? HEARTBEAT : REPORT];
    fill_fields(node);
    if (due >= counted_from) sent++, whole += !node->base;
    if (node->connected) push(node);
}

static void finish(struct node *node, int status, const char *body) {
    if (status == 409 && node->base) { /* another leader: a whole report, due at the same time */
        node->base = 0;
        if (node->due >= counted_from) sent--;
        start(node, node->due);
        return;
    }
    const char *base = strstr(body, "\"base\":");
    if (status == 200 && !node->base && base && node->requests[HEARTBEAT].length) node->base = atoll(base + 7);
    if (node->due >= counted_from) {
        answered++;
        if (status != 200) refused++;
        count_ns(latency, now_ns() - node->due);
    }
    node->busy = 0;
    if (node->waiting) start(node, node->next - interval * node->waiting--);
}

static void pull(struct node *node) {
    ssize_t part = recv(node->socket, node->answer + node->got, sizeof node->answer - 1 - node->got, 0);
    if (part < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (part <= 0) { drop(node); return; }
    node->got += part;
    node->answer[node->got] = 0;
    char *end = strstr(node->answer, "\r\n\r\n"), *length = strcasestr(node->answer, "content-length:");
    if (!end) return;
    size_t body = length && length < end ? strtoul(length + 15, NULL, 10) : 0;
    if (node->got >= (size_t)(end - node->answer) + 4 + body) finish(node, atoi(node->answer + 9), end);
}

static void handle(struct epoll_event *event) {
    struct node *node = event->data.ptr;
    if (node->socket < 0) return;
    if (event->events & (EPOLLERR | EPOLLHUP)) { drop(node); return; }
    if (event->events & EPOLLOUT) {
        node->connected = 1;
        if (node->busy) push(node);
        else want(node, EPOLLIN);
    }
    if (node->socket >= 0 && event->events & EPOLLIN) pull(node);
}

int main(int argc, char **argv) {
    if (argc != 7) { fprintf(stderr, "usage: load_generator FILE PORT INTERVAL_S SECONDS JOIN_S SPREAD_S\n"); return 2; }
    read_nodes(argv[1]);
    port = atoi(argv[2]);
    interval = (int64_t)(atof(argv[3]) * 1e9);
    events = epoll_create1(0);
    begun = now_ns();
    int64_t end = begun + (int64_t)(atof(argv[4]) * 1e9);
    counted_from = begun + (int64_t)(atof(argv[5]) * 1e9);
    for (uint32_t i = 0; i < count; i++) nodes[i].next = begun + (int64_t)(atof(argv[6]) * 1e9 * i / count); /* in the order of their turns */
    struct epoll_event ready[512];
    uint32_t turn = 0;
    for (int64_t now; (now = now_ns()) < end;) {
        while (nodes[turn].next <= now) {
            struct node *node = &nodes[turn];
            int64_t due = node->next;
            node->next += interval;
            turn = (turn + 1) % count;
            if (node->busy) { node->waiting++; continue; }
            start(node, due);
            if (due >= counted_from) count_ns(lateness, now_ns() - due);
        }
        int64_t left = nodes[turn].next - now_ns();
        struct timespec timeout = {.tv_nsec = left < 0 ? 0 : left > 50000000 ? 50000000 : left};
        int many = epoll_pwait2(events, ready, 512, &timeout, NULL);
        for (int i = 0; i < many; i++) handle(&ready[i]);
    }
    uint64_t waiting = 0;
    for (uint32_t i = 0; i < count; i++) waiting += nodes[i].waiting + (nodes[i].busy && nodes[i].due >= counted_from);
    printf("{\"sent\": %llu, \"whole\": %llu, \"answered\": %llu, \"refused\": %llu, \"broken\": %llu, \"waiting\": %llu, ",
           (unsigned long long)sent, (unsigned long long)whole, (unsigned long long)answered, (unsigned long long)refused,
           (unsigned long long)broken, (unsigned long long)waiting);
    printf("\"latency_ms\": [%.1f, %.1f, %.1f], \"lateness_ms\": [%.1f, %.1f, %.1f]}\n",
           quantile_ms(latency, 0.5), quantile_ms(latency, 0.99), quantile_ms(latency, 1),
           quantile_ms(lateness, 0.5), quantile_ms(lateness, 0.99), quantile_ms(lateness, 1));
    return 0;
}
