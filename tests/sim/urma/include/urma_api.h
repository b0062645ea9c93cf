/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of the URMA programming interface that src/foreign/urma_native.c uses, declared by us so
 * that the adapter is compiled and run in every build: names and fields only, in an order of our
 * own. It says nothing about the binary interface of a real liburma; with -Durma_prefix= the
 * adapter is compiled against the installed headers instead. urma_shim.c defines the functions over
 * the simulated fabric.
 */
#ifndef FERRY_TESTS_SIM_URMA_API_H
#define FERRY_TESTS_SIM_URMA_API_H

#include <stdint.h>

#define URMA_EID_SIZE     16
#define URMA_MAX_NAME     64
#define URMA_MAX_PATH     4096
#define URMA_API_VERSION  ((0 << 16) | 9)
#define MAX_PORT_CNT      8
#define URMA_MAX_PRIORITY 15

/* Status of calls: 0, or a positive number. */
typedef int urma_status_t;
#define URMA_SUCCESS  0
#define URMA_EAGAIN   11
#define URMA_ENOMEM   12
#define URMA_ENOPERM  1
#define URMA_ETIMEOUT 110
#define URMA_EINVAL   22
#define URMA_EEXIST   17
#define URMA_FAIL     0x1000

typedef enum urma_cr_status {
    URMA_CR_SUCCESS = 0,
    URMA_CR_UNSUPPORTED_OPCODE_ERR,
    URMA_CR_LOC_LEN_ERR,
    URMA_CR_LOC_OPERATION_ERR,
    URMA_CR_LOC_ACCESS_ERR,
    URMA_CR_REM_RESP_LEN_ERR,
    URMA_CR_REM_UNSUPPORTED_REQ_ERR,
    URMA_CR_REM_OPERATION_ERR,
    URMA_CR_REM_ACCESS_ABORT_ERR,
    URMA_CR_ACK_TIMEOUT_ERR,
    URMA_CR_RNR_RETRY_CNT_EXC_ERR,
    URMA_CR_WR_FLUSH_ERR,
    URMA_CR_WR_SUSPEND_DONE,
    URMA_CR_WR_FLUSH_ERR_DONE,
    URMA_CR_WR_UNHANDLED,
    URMA_CR_LOC_DATA_POISON,
    URMA_CR_REM_DATA_POISON,
} urma_cr_status_t;

typedef enum urma_opcode {
    URMA_OPC_WRITE = 0x00,
    URMA_OPC_READ = 0x10,
} urma_opcode_t;

typedef enum urma_port_state {
    URMA_PORT_NOP = 0,
    URMA_PORT_DOWN,
    URMA_PORT_INIT,
    URMA_PORT_ARMED,
    URMA_PORT_ACTIVE,
    URMA_PORT_ACTIVE_DEFER,
} urma_port_state_t;

typedef enum urma_speed {
    URMA_SP_10M = 0,
    URMA_SP_100M,
    URMA_SP_1G,
    URMA_SP_2_5G,
    URMA_SP_5G,
    URMA_SP_10G,
    URMA_SP_14G,
    URMA_SP_25G,
    URMA_SP_40G,
    URMA_SP_50G,
    URMA_SP_100G,
    URMA_SP_200G,
    URMA_SP_400G,
    URMA_SP_800G,
} urma_speed_t;

typedef enum urma_async_event_type {
    URMA_EVENT_JFC_ERR,
    URMA_EVENT_JFS_ERR,
    URMA_EVENT_JFR_ERR,
    URMA_EVENT_JFR_LIMIT,
    URMA_EVENT_JETTY_ERR,
    URMA_EVENT_JETTY_LIMIT,
    URMA_EVENT_JETTY_GRP_ERR,
    URMA_EVENT_PORT_ACTIVE,
    URMA_EVENT_PORT_DOWN,
    URMA_EVENT_DEV_FATAL,
    URMA_EVENT_EID_CHANGE,
    URMA_EVENT_ELR_ERR,
    URMA_EVENT_ELR_DONE,
} urma_async_event_type_t;

#define URMA_ACCESS_LOCAL_ONLY (0x1 << 0)
#define URMA_ACCESS_READ       (0x1 << 1)
#define URMA_ACCESS_WRITE      (0x1 << 2)
#define URMA_ACCESS_ATOMIC     (0x1 << 3)

#define URMA_TOKEN_NONE       0
#define URMA_TOKEN_PLAIN_TEXT 1
#define URMA_NON_CACHEABLE    0
#define URMA_SEG_NOMAP        0

typedef enum urma_transport_mode {
    URMA_TM_RM = 1,
    URMA_TM_RC = 2,
    URMA_TM_UM = 4,
} urma_transport_mode_t;

typedef enum urma_tp_type {
    URMA_RTP,
    URMA_CTP,
    URMA_UTP,
} urma_tp_type_t;

typedef enum urma_target_type {
    URMA_JFR = 0,
    URMA_JETTY,
    URMA_JETTY_GROUP,
} urma_target_type_t;

typedef enum urma_jetty_state {
    URMA_JETTY_STATE_RESET = 0,
    URMA_JETTY_STATE_READY,
    URMA_JETTY_STATE_SUSPENDED,
    URMA_JETTY_STATE_ERROR,
} urma_jetty_state_t;

typedef enum urma_jetty_attr_mask {
    JETTY_RX_THRESHOLD = 1,
    JETTY_STATE = 2,
} urma_jetty_attr_mask_t;

typedef union urma_eid {
    uint8_t raw[URMA_EID_SIZE];
} urma_eid_t;

typedef struct urma_init_attr {
    uint64_t token;
    uint32_t uasid;
} urma_init_attr_t;

typedef union urma_device_feature {
    uint32_t value;
} urma_device_feature_t;

typedef struct urma_device_cap {
    urma_device_feature_t feature;
    uint32_t max_jfc;
    uint32_t max_jfr;
    uint32_t max_jetty;
    uint32_t max_jfc_depth;
    uint32_t max_jfs_depth;
    uint32_t max_jfr_depth;
    uint32_t max_jfs_inline_len;
    uint32_t max_jfs_sge;
    uint64_t max_msg_size;
    uint32_t max_read_size;
    uint32_t max_write_size;
    uint16_t trans_mode;
} urma_device_cap_t;

typedef struct urma_port_attr {
    urma_port_state_t state;
    urma_speed_t active_speed;
} urma_port_attr_t;

typedef struct urma_device_attr {
    urma_device_cap_t dev_cap;
    uint8_t port_cnt;
    urma_port_attr_t port_attr[MAX_PORT_CNT];
} urma_device_attr_t;

typedef struct urma_device {
    char name[URMA_MAX_NAME];
    char path[URMA_MAX_PATH];
} urma_device_t;

typedef struct urma_eid_info {
    urma_eid_t eid;
    uint32_t eid_index;
} urma_eid_info_t;

typedef enum urma_context_opt_name {
    URMA_OPT_AGGR_MODE,
} urma_opt_name_t;

typedef enum urma_context_aggr_mode {
    URMA_AGGR_MODE_STANDALONE,
    URMA_AGGR_MODE_ACTIVE_BACKUP,
    URMA_AGGR_MODE_BALANCE,
} urma_context_aggr_mode_t;

typedef struct urma_context {
    int async_fd;
    urma_eid_t eid;
    uint32_t uasid;
} urma_context_t;

typedef struct urma_jfce {
    int fd;
} urma_jfce_t;

typedef union urma_jfc_flag {
    uint32_t value;
} urma_jfc_flag_t;

typedef struct urma_jfc_cfg {
    uint32_t depth;
    urma_jfc_flag_t flag;
    uint32_t ceqn;
    urma_jfce_t *jfce;
    uint64_t user_ctx;
} urma_jfc_cfg_t;

typedef struct urma_jfc {
    urma_jfc_cfg_t jfc_cfg;
} urma_jfc_t;

typedef struct urma_token {
    uint32_t token;
} urma_token_t;

typedef union urma_jfr_flag {
    struct {
        uint32_t token_policy : 3;
        uint32_t order_type : 8;
        uint32_t reserved : 21;
    } bs;
    uint32_t value;
} urma_jfr_flag_t;

typedef struct urma_jfr_cfg {
    uint32_t id;
    uint32_t depth;
    urma_jfr_flag_t flag;
    urma_transport_mode_t trans_mode;
    uint8_t max_sge;
    uint8_t min_rnr_timer;
    urma_jfc_t *jfc;
    urma_token_t token_value;
    uint64_t user_ctx;
} urma_jfr_cfg_t;

typedef struct urma_jfr {
    urma_jfr_cfg_t jfr_cfg;
} urma_jfr_t;

typedef union urma_jfs_flag {
    struct {
        uint32_t lock_free : 1;
        uint32_t error_suspend : 1;
        uint32_t outorder_comp : 1;
        uint32_t order_type : 8;
        uint32_t multi_path : 1;
        uint32_t reserved : 20;
    } bs;
    uint32_t value;
} urma_jfs_flag_t;

typedef struct urma_jfs_cfg {
    uint32_t depth;
    urma_jfs_flag_t flag;
    urma_transport_mode_t trans_mode;
    uint8_t priority;
    uint8_t max_sge;
    uint8_t max_rsge;
    uint32_t max_inline_data;
    uint8_t rnr_retry;
    uint8_t err_timeout;
    urma_jfc_t *jfc;
    uint64_t user_ctx;
} urma_jfs_cfg_t;

typedef union urma_jetty_flag {
    struct {
        uint32_t share_jfr : 1;
        uint32_t reserved : 31;
    } bs;
    uint32_t value;
} urma_jetty_flag_t;

typedef struct urma_jetty_cfg {
    uint32_t id;
    urma_jetty_flag_t flag;
    urma_jfs_cfg_t jfs_cfg;
    struct {
        urma_jfr_t *jfr;
        urma_jfc_t *jfc;
    } shared;
    uint64_t user_ctx;
} urma_jetty_cfg_t;

typedef struct urma_jetty_id {
    urma_eid_t eid;
    uint32_t uasid;
    uint32_t id;
} urma_jetty_id_t;

typedef union urma_import_jetty_flag {
    struct {
        uint32_t token_policy : 3;
        uint32_t order_type : 8;
        uint32_t share_tp : 1;
        uint32_t reserved : 20;
    } bs;
    uint32_t value;
} urma_import_jetty_flag_t;

typedef struct urma_rjetty {
    urma_jetty_id_t jetty_id;
    urma_transport_mode_t trans_mode;
    urma_target_type_t type;
    urma_import_jetty_flag_t flag;
    urma_tp_type_t tp_type;
} urma_rjetty_t;

typedef struct urma_target_jetty {
    urma_jetty_id_t id;
} urma_target_jetty_t;

typedef struct urma_jetty_attr {
    uint32_t mask;
    uint32_t rx_threshold;
    urma_jetty_state_t state;
} urma_jetty_attr_t;

typedef struct urma_jetty {
    urma_jetty_id_t jetty_id;
    urma_jetty_cfg_t jetty_cfg;
} urma_jetty_t;

typedef struct urma_ubva {
    urma_eid_t eid;
    uint32_t uasid;
    uint64_t va;
} __attribute__((packed)) urma_ubva_t;

typedef union urma_reg_seg_flag {
    struct {
        uint32_t token_policy : 3;
        uint32_t cacheable : 1;
        uint32_t dsva : 1;
        uint32_t access : 6;
        uint32_t non_pin : 1;
        uint32_t user_iova : 1;
        uint32_t token_id_valid : 1;
        uint32_t reserved : 18;
    } bs;
    uint32_t value;
} urma_reg_seg_flag_t;

typedef union urma_seg_attr {
    struct {
        uint32_t token_policy : 3;
        uint32_t cacheable : 1;
        uint32_t dsva : 1;
        uint32_t access : 6;
        uint32_t non_pin : 1;
        uint32_t user_iova : 1;
        uint32_t user_token_id : 1;
        uint32_t reserved : 18;
    } bs;
    uint32_t value;
} urma_seg_attr_t;

typedef union urma_import_seg_flag {
    struct {
        uint32_t cacheable : 1;
        uint32_t access : 6;
        uint32_t mapping : 1;
        uint32_t reserved : 24;
    } bs;
    uint32_t value;
} urma_import_seg_flag_t;

typedef struct urma_token_id {
    uint32_t token_id;
} urma_token_id_t;

typedef struct urma_seg_cfg {
    uint64_t va;
    uint64_t len;
    urma_token_id_t *token_id;
    urma_token_t token_value;
    urma_reg_seg_flag_t flag;
    uint64_t user_ctx;
    uint64_t iova;
} urma_seg_cfg_t;

typedef struct urma_seg {
    urma_ubva_t ubva;
    uint64_t len;
    urma_seg_attr_t attr;
    uint32_t token_id;
} urma_seg_t;

typedef struct urma_target_seg {
    urma_seg_t seg;
    uint64_t user_ctx;
} urma_target_seg_t;

typedef struct urma_user_tseg {
    uint32_t token_id;
} urma_user_tseg_t;

typedef struct urma_sge {
    uint64_t addr;
    uint32_t len;
    urma_target_seg_t *tseg;
    urma_user_tseg_t *user_tseg;
} urma_sge_t;

typedef struct urma_sg {
    urma_sge_t *sge;
    uint32_t num_sge;
} urma_sg_t;

typedef union urma_jfs_wr_flag {
    struct {
        uint32_t place_order : 2;
        uint32_t comp_order : 1;
        uint32_t fence : 1;
        uint32_t solicited_enable : 1;
        uint32_t complete_enable : 1;
        uint32_t inline_flag : 1;
        uint32_t reserved : 25;
    } bs;
    uint32_t value;
} urma_jfs_wr_flag_t;

typedef struct urma_rw_wr {
    urma_sg_t src;
    urma_sg_t dst;
    uint8_t target_hint;
    uint64_t notify_data;
} urma_rw_wr_t;

typedef struct urma_jfs_wr {
    urma_opcode_t opcode;
    urma_jfs_wr_flag_t flag;
    urma_target_jetty_t *tjetty;
    uint64_t user_ctx;
    urma_rw_wr_t rw;
    struct urma_jfs_wr *next;
} urma_jfs_wr_t;

typedef union urma_cr_flag {
    struct {
        uint8_t s_r : 1;
        uint8_t jetty : 1;
        uint8_t suspend_done : 1;
        uint8_t flush_err_done : 1;
        uint8_t reserved : 4;
    } bs;
    uint8_t value;
} urma_cr_flag_t;

typedef struct urma_cr {
    urma_cr_status_t status;
    uint64_t user_ctx;
    urma_cr_flag_t flag;
    uint32_t completion_len;
    uint32_t local_id;
} urma_cr_t;

typedef struct urma_async_event {
    const urma_context_t *urma_ctx;
    union {
        urma_jfc_t *jfc;
        urma_jfr_t *jfr;
        urma_jetty_t *jetty;
        uint32_t port_id;
        uint32_t eid_idx;
    } element;
    urma_async_event_type_t event_type;
    void *priv;
} urma_async_event_t;

typedef void (*urma_log_cb_t)(int level, char *message);

urma_status_t urma_init(urma_init_attr_t *attr);
urma_status_t urma_uninit(void);
urma_status_t urma_register_log_func(urma_log_cb_t func);
urma_device_t **urma_get_device_list(int *num);
void urma_free_device_list(urma_device_t **list);
urma_device_t *urma_get_device_by_name(char *name);
urma_status_t urma_query_device(urma_device_t *dev, urma_device_attr_t *attr);
urma_eid_info_t *urma_get_eid_list(urma_device_t *dev, uint32_t *count);
void urma_free_eid_list(urma_eid_info_t *list);
urma_context_t *urma_create_context(urma_device_t *dev, uint32_t eid_index);
urma_status_t urma_delete_context(urma_context_t *ctx);
urma_status_t urma_set_context_opt(urma_context_t *ctx, urma_opt_name_t name, const void *value,
                                   uint32_t len);
urma_status_t urma_get_async_event(urma_context_t *ctx, urma_async_event_t *event);
void urma_ack_async_event(urma_async_event_t *event);
urma_jfce_t *urma_create_jfce(urma_context_t *ctx);
urma_status_t urma_delete_jfce(urma_jfce_t *jfce);
urma_jfc_t *urma_create_jfc(urma_context_t *ctx, urma_jfc_cfg_t *cfg);
urma_status_t urma_delete_jfc(urma_jfc_t *jfc);
urma_jfr_t *urma_create_jfr(urma_context_t *ctx, urma_jfr_cfg_t *cfg);
urma_status_t urma_delete_jfr(urma_jfr_t *jfr);
urma_jetty_t *urma_create_jetty(urma_context_t *ctx, urma_jetty_cfg_t *cfg);
urma_status_t urma_modify_jetty(urma_jetty_t *jetty, urma_jetty_attr_t *attr);
urma_status_t urma_delete_jetty(urma_jetty_t *jetty);
urma_target_jetty_t *urma_import_jetty(urma_context_t *ctx, urma_rjetty_t *rjetty,
                                       urma_token_t *token);
urma_status_t urma_unimport_jetty(urma_target_jetty_t *tjetty);
urma_status_t urma_bind_jetty(urma_jetty_t *jetty, urma_target_jetty_t *tjetty);
urma_status_t urma_unbind_jetty(urma_jetty_t *jetty);
int urma_flush_jetty(urma_jetty_t *jetty, int cr_cnt, urma_cr_t *cr);
urma_target_seg_t *urma_register_seg(urma_context_t *ctx, urma_seg_cfg_t *cfg);
urma_status_t urma_unregister_seg(urma_target_seg_t *seg);
urma_target_seg_t *urma_import_seg(urma_context_t *ctx, urma_seg_t *seg, urma_token_t *token,
                                   uint64_t addr, urma_import_seg_flag_t flag);
urma_status_t urma_unimport_seg(urma_target_seg_t *seg);
urma_status_t urma_post_jetty_send_wr(urma_jetty_t *jetty, urma_jfs_wr_t *wr,
                                      urma_jfs_wr_t **bad_wr);
int urma_poll_jfc(urma_jfc_t *jfc, int cr_cnt, urma_cr_t *cr);
urma_status_t urma_rearm_jfc(urma_jfc_t *jfc, int solicited_only);
int urma_wait_jfc(urma_jfce_t *jfce, uint32_t jfc_cnt, int time_out, urma_jfc_t *jfc[]);
void urma_ack_jfc(urma_jfc_t *jfc[], uint32_t nevents[], uint32_t jfc_cnt);

#endif
