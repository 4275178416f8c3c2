/* The few MPI calls that Treering needs, with types that are the same for every MPI. Every function returns
 * the MPI's own code; tr_class says what kind of trouble that is. ULFM's functions are looked up at run time,
 * and used only if the MPI says that fault tolerance is switched on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct { MPI_Comm comm; } tr_comm;
typedef struct { MPI_Request request; } tr_request;

enum { TR_FINE = 0, TR_DEAD = 1, TR_REVOKED = 2, TR_OTHER = 3 };

int tr_class(int code) {
    int class = MPI_SUCCESS;
    if (code == MPI_SUCCESS) return TR_FINE;
    MPI_Error_class(code, &class);
#ifdef MPIX_ERR_PROC_FAILED
    if (class == MPIX_ERR_PROC_FAILED) return TR_DEAD;
#endif
#ifdef MPIX_ERR_PROC_FAILED_PENDING
    if (class == MPIX_ERR_PROC_FAILED_PENDING) return TR_DEAD;
#endif
#ifdef MPIX_ERR_REVOKED
    if (class == MPIX_ERR_REVOKED) return TR_REVOKED;
#endif
    return TR_OTHER;
}

/* `text` has room for `room` bytes. */
void tr_text(int code, char *text, int room) {
    char full[MPI_MAX_ERROR_STRING + 1];
    int length = 0;
    full[0] = 0;
    MPI_Error_string(code, full, &length);
    full[MPI_MAX_ERROR_STRING] = 0;
    strncpy(text, full, (size_t)room - 1);
    text[room - 1] = 0;
}

int tr_init(int *own) {
    int there = 0, provided = 0, code;
    *own = 0;
    if ((code = MPI_Initialized(&there)) != MPI_SUCCESS || there) return code;
    *own = 1;
    return MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
}

int tr_finalize(void) {
    int over = 0, code = MPI_Finalized(&over);
    return code != MPI_SUCCESS || over ? code : MPI_Finalize();
}

/* Whether fault tolerance is on: Open MPI has the symbols even if it is off. */
int tr_survives(void) {
    int provided = 0, index = 0, count = 0, value = 0;
    MPI_T_cvar_handle handle;
    if (dlsym(RTLD_DEFAULT, "MPIX_Comm_shrink") == NULL) return 0;
    if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS) return 0;
    if (MPI_T_cvar_get_index("mpi_ft_enable", &index) == MPI_SUCCESS &&
        MPI_T_cvar_handle_alloc(index, NULL, &handle, &count) == MPI_SUCCESS) {
        if (count != 1 || MPI_T_cvar_read(handle, &value) != MPI_SUCCESS) value = 0;
        MPI_T_cvar_handle_free(&handle);
    }
    MPI_T_finalize();
    return value != 0;
}

static int wrap(MPI_Comm comm, tr_comm **out) {
    *out = malloc(sizeof **out);
    if (*out == NULL) return MPI_ERR_NO_MEM;
    (*out)->comm = comm;
    return MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
}

/* A duplicate of MPI_COMM_WORLD, or of the communicator with this Fortran handle. */
int tr_duplicate(int world, int handle, tr_comm **out) {
    MPI_Comm copy, of = world ? MPI_COMM_WORLD : MPI_Comm_f2c((MPI_Fint)handle);
    int code = MPI_Comm_dup(of, &copy);
    return code != MPI_SUCCESS ? code : wrap(copy, out);
}

int tr_free(tr_comm *comm) {
    int code = MPI_Comm_free(&comm->comm);
    free(comm);
    return code;
}

void tr_forget(tr_comm *comm) { free(comm); }

int tr_rank(tr_comm *comm, int *rank) { return MPI_Comm_rank(comm->comm, rank); }
int tr_size(tr_comm *comm, int *size) { return MPI_Comm_size(comm->comm, size); }

static int keep(int code, MPI_Request request, tr_request **out) {
    *out = NULL;
    if (code != MPI_SUCCESS) return code;
    *out = malloc(sizeof **out);
    if (*out == NULL) return MPI_ERR_NO_MEM;
    (*out)->request = request;
    return MPI_SUCCESS;
}

int tr_isend(tr_comm *comm, int to, int tag, const void *bytes, int len, int synchronous, tr_request **out) {
    MPI_Request request = MPI_REQUEST_NULL;
    int code = synchronous ? MPI_Issend(bytes, len, MPI_BYTE, to, tag, comm->comm, &request)
                           : MPI_Isend(bytes, len, MPI_BYTE, to, tag, comm->comm, &request);
    return keep(code, request, out);
}

int tr_irecv(tr_comm *comm, int from, int tag, void *bytes, int len, tr_request **out) {
    MPI_Request request = MPI_REQUEST_NULL;
    int code = MPI_Irecv(bytes, len, MPI_BYTE, from, tag, comm->comm, &request);
    return keep(code, request, out);
}

int tr_ibarrier(tr_comm *comm, tr_request **out) {
    MPI_Request request = MPI_REQUEST_NULL;
    int code = MPI_Ibarrier(comm->comm, &request);
    return keep(code, request, out);
}

/* The request is gone when it is done, or when an error is returned. */
int tr_test(tr_request *request, int *done) {
    int code = MPI_Test(&request->request, done, MPI_STATUS_IGNORE);
    if (tr_class(code) != TR_FINE) *done = 1;
    if (*done) {
        if (code != MPI_SUCCESS && request->request != MPI_REQUEST_NULL) MPI_Request_free(&request->request);
        free(request);
    }
    return code;
}

/* Requests that are done, or whose transfers have failed, are gone, and their places are NULL. One look of MPI for all. */
int tr_test_some(tr_request **requests, int count) {
    MPI_Request *all = malloc((size_t)count * sizeof *all);
    MPI_Status *statuses = malloc((size_t)count * sizeof *statuses);
    int *places = malloc((size_t)count * sizeof *places);
    int done = 0, class = MPI_SUCCESS, result = MPI_ERR_NO_MEM;
    if (all != NULL && statuses != NULL && places != NULL) {
        for (int at = 0; at < count; at++) all[at] = requests[at]->request;
        result = MPI_Testsome(count, all, &done, places, statuses);
        for (int at = 0; at < count; at++) requests[at]->request = all[at];
        if (result != MPI_SUCCESS) MPI_Error_class(result, &class);
        if (done == MPI_UNDEFINED || (result != MPI_SUCCESS && class != MPI_ERR_IN_STATUS)) done = 0;
        if (class == MPI_ERR_IN_STATUS) result = MPI_SUCCESS;
        for (int at = 0; at < done; at++) {
            tr_request **place = &requests[places[at]];
            int code = class == MPI_ERR_IN_STATUS ? statuses[at].MPI_ERROR : MPI_SUCCESS;
            if (code == MPI_ERR_PENDING) continue;
            if (code != MPI_SUCCESS && result == MPI_SUCCESS) result = code;
            if ((*place)->request != MPI_REQUEST_NULL) MPI_Request_free(&(*place)->request);
            free(*place);
            *place = NULL;
        }
    }
    free(all);
    free(statuses);
    free(places);
    return result;
}

int tr_iprobe(tr_comm *comm, int from, int tag, int *found, int *source, int *len) {
    MPI_Status status;
    int code = MPI_Iprobe(from < 0 ? MPI_ANY_SOURCE : from, tag, comm->comm, found, &status);
    if (code != MPI_SUCCESS || !*found) return code;
    *source = status.MPI_SOURCE;
    return MPI_Get_count(&status, MPI_BYTE, len);
}

int tr_recv(tr_comm *comm, int from, int tag, void *bytes, int len) {
    return MPI_Recv(bytes, len, MPI_BYTE, from, tag, comm->comm, MPI_STATUS_IGNORE);
}

int tr_bcast(tr_comm *comm, void *bytes, int len, int root) {
    return MPI_Bcast(bytes, len, MPI_BYTE, root, comm->comm);
}

int tr_gather(tr_comm *comm, const void *own, int len, void *all, int root) {
    return MPI_Gather(own, len, MPI_BYTE, all, len, MPI_BYTE, root, comm->comm);
}

int tr_reduce(tr_comm *comm, int how, uint64_t *values, int count) {
    MPI_Op ops[3] = {MPI_SUM, MPI_MIN, MPI_MAX};
    return MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_UINT64_T, ops[how], comm->comm);
}

int tr_split(tr_comm *comm, int color, int key, tr_comm **out) {
    MPI_Comm part;
    int code = MPI_Comm_split(comm->comm, color, key, &part);
    return code != MPI_SUCCESS ? code : wrap(part, out);
}

/* The ranks that can share memory with this one. */
int tr_machine(tr_comm *comm, tr_comm **out) {
    MPI_Comm part;
    int code = MPI_Comm_split_type(comm->comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &part);
    return code != MPI_SUCCESS ? code : wrap(part, out);
}

/* -1 if it is not one of MPI_COMM_WORLD. No communication. */
int tr_world_rank(tr_comm *comm, int rank, int *world_rank) {
    MPI_Group own = MPI_GROUP_NULL, world = MPI_GROUP_NULL;
    int code = MPI_Comm_group(comm->comm, &own);
    if (code == MPI_SUCCESS && (code = MPI_Comm_group(MPI_COMM_WORLD, &world)) == MPI_SUCCESS)
        code = MPI_Group_translate_ranks(own, 1, &rank, world, world_rank);
    if (code != MPI_SUCCESS || *world_rank == MPI_UNDEFINED) *world_rank = -1;
    if (own != MPI_GROUP_NULL) MPI_Group_free(&own);
    if (world != MPI_GROUP_NULL) MPI_Group_free(&world);
    return code;
}

typedef int agree_fn(MPI_Comm, int *);
typedef int revoke_fn(MPI_Comm);
typedef int shrink_fn(MPI_Comm, MPI_Comm *);
typedef int acked_fn(MPI_Comm, MPI_Group *);

static void *look_up(const char *name) { return dlsym(RTLD_DEFAULT, name); }

/* The value is the same for all survivors, also where the code says that somebody has died. */
int tr_agree(tr_comm *comm, int *flag) {
    revoke_fn *acknowledge = (revoke_fn *)look_up("MPIX_Comm_failure_ack");
    agree_fn *agree = (agree_fn *)look_up("MPIX_Comm_agree");
    int code;
    if (acknowledge == NULL || agree == NULL) return MPI_ERR_OTHER;
    if ((code = acknowledge(comm->comm)) != MPI_SUCCESS) return code;
    code = agree(comm->comm, flag);
    return tr_class(code) == TR_DEAD ? MPI_SUCCESS : code;
}

int tr_revoke(tr_comm *comm) {
    revoke_fn *revoke = (revoke_fn *)look_up("MPIX_Comm_revoke");
    return revoke == NULL ? MPI_ERR_OTHER : revoke(comm->comm);
}

int tr_is_revoked(tr_comm *comm) {
    agree_fn *is_revoked = (agree_fn *)look_up("MPIX_Comm_is_revoked");
    int revoked = 0;
    return is_revoked != NULL && is_revoked(comm->comm, &revoked) == MPI_SUCCESS && revoked;
}

int tr_shrink(tr_comm *comm, tr_comm **out) {
    shrink_fn *shrink = (shrink_fn *)look_up("MPIX_Comm_shrink");
    MPI_Comm smaller;
    int code = shrink == NULL ? MPI_ERR_OTHER : shrink(comm->comm, &smaller);
    return code != MPI_SUCCESS ? code : wrap(smaller, out);
}

/* The ranks that are known to have died; `ranks` has room for all. */
int tr_dead(tr_comm *comm, int *ranks, int *count) {
    revoke_fn *acknowledge = (revoke_fn *)look_up("MPIX_Comm_failure_ack");
    acked_fn *acked = (acked_fn *)look_up("MPIX_Comm_failure_get_acked");
    MPI_Group dead = MPI_GROUP_NULL, all = MPI_GROUP_NULL;
    int code, *places = NULL;
    *count = 0;
    if (acknowledge == NULL || acked == NULL) return MPI_ERR_OTHER;
    if ((code = acknowledge(comm->comm)) != MPI_SUCCESS) return code;
    if ((code = acked(comm->comm, &dead)) != MPI_SUCCESS) return code;
    if ((code = MPI_Comm_group(comm->comm, &all)) == MPI_SUCCESS &&
        (code = MPI_Group_size(dead, count)) == MPI_SUCCESS && *count > 0) {
        places = malloc((size_t)*count * sizeof *places);
        if (places == NULL) code = MPI_ERR_NO_MEM;
        for (int at = 0; places != NULL && at < *count; at++) places[at] = at;
        if (places != NULL) code = MPI_Group_translate_ranks(dead, *count, places, all, ranks);
        free(places);
    }
    if (dead != MPI_GROUP_NULL && dead != MPI_GROUP_EMPTY) MPI_Group_free(&dead);
    if (all != MPI_GROUP_NULL) MPI_Group_free(&all);
    return code;
}
