"""The examples of libibverbs."""

NAME = "ibverbs-utils"
PACKAGES = ["ibverbs-utils"]
WHAT = ("`ibv_devices` and `ibv_devinfo`. `ibv_rc_`, `ibv_uc_`, `ibv_ud_` and `ibv_srq_pingpong` run with polling and "
        "with events, on one host and between two network namespaces, over IPv4 and IPv6.")
GROUPS = ["devices", "pingpong"]
