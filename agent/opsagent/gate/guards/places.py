"""Protected places of a Linux host, as data: what must never be read, what must never be written, and what needs a person.

Patterns are full-match regular expressions on normalised absolute paths. `T` stands for the place and all below it.
"""

from __future__ import annotations

import re

T = r"(/.*)?"


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{p})" for p in patterns), re.IGNORECASE)


SECRET = _any(
    r".*/\.ssh/?|.*/\.ssh/(?!config$|known_hosts(\.old)?$|.*\.pub$).*",
    rf".*/\.gnupg{T}", rf".*/\.password-store{T}", rf".*/\.aws{T}", rf".*/\.azure{T}", rf".*/\.kube{T}",
    rf".*/\.config/(gcloud|gh|hub|rclone|op){T}", r".*/\.docker/config\.json", r".*/\.(netrc|pgpass|my\.cnf|pypirc|npmrc)",
    r".*/\.git-credentials", r".*/\.(ba|z|k|da)?sh_history", r".*/\.python_history", r".*/\.vault-token",
    r".*/(\.cache/)?huggingface/(stored_)?tokens?", r".*/\.huggingface/token", r".*/\.env(\.[^/]*)?", r".*\.env",
    r"/etc/(g?shadow[^/]*|security/opasswd)", r"/var/backups/(g?shadow|passwd).*", rf"/etc/sudoers(\.d{T}|\..*|-|)",
    rf"/etc/ssl/private{T}",
    r"/etc/ssh/ssh_host_[^/]*_key", rf"/etc/pve/priv{T}", r"/etc/pve/.*\.key", r"/etc/pve/(.*/)?pve-www\.key",
    rf"/etc/(NetworkManager/system-connections|wireguard|openvpn|ipsec\.d/private|letsencrypt/(live|archive|keys"
    rf"|accounts)){T}", r"/etc/ipsec\.secrets",
    r"/etc/kubernetes/[^/]*\.conf", rf"/etc/kubernetes/pki{T}", rf"/var/lib/kubelet/pki{T}", rf"(/var)?/run/secrets{T}",
    r"/etc/krb5\.keytab", r"/etc/machine-id\.key", rf"/etc/credstore(\.encrypted)?{T}", r"/etc/ppp/(chap|pap)-secrets",
    rf"/etc/(libvirt/secrets|corosync/authkey){T}", r"/var/lib/systemd/(random-seed|credential\.secret)",
    rf"/var/lib/(sss/secrets|krb5kdc){T}", r"/etc/rancher/.*\.yaml", r"/etc/cni/.*\.kubeconfig",
    r".*/(id_(rsa|dsa|ecdsa|ed25519|ecdsa_sk|ed25519_sk)|identity)", r".*/authorized_keys2?",
    r".*\.(key|pfx|p12|keytab|kdbx|jks|ppk|asc\.key)", r".*/[^/]*key[^/]*\.pem", r"/(root|home)/.*\.pem",
    r".*/(credentials?|secrets?|passwords?|api[-_]?keys?|tokens?)(\.(json|ya?ml|toml|txt|ini|conf|env|csv))?",
    r"/proc/([0-9]+|self|thread-self|\*|[^/]*[?*$\x00][^/]*)(/task/[^/]*)?/(environ|mem|auxv)",
    r"/proc/kcore|/dev/(k?mem|port|oldmem)|/proc/kallsyms", r"/sys/kernel/security/.*",
)  # fmt: skip
"""Contents must not be read by anybody's command: the gate refuses."""

NOT_SECRET = _any(
    r".*/huggingface/hub/.*", r".*/site-packages/.*", r"/usr/(lib|share|include)/.*", r".*/(special_)?tokens?_map\.json",
)  # fmt: skip

SECRET_PARENTS = (
    "/", "/root", "/home", "/etc", "/etc/ssh", "/etc/ssl", "/etc/pve", "/proc", "/proc/self", "/run", "/var", "/var/run",
    "/var/lib", "/dev", "/etc/kubernetes", "/var/lib/kubelet", "/var/lib/docker", "/root/.cache", "/root/.config",
    "/root/.cache/huggingface", "/var/lib/systemd", "/etc/libvirt", "/var/lib/lxc", "/var/lib/vz",
)  # fmt: skip
"""Reading the contents of everything below one of these meets secrets."""

NEVER_WRITTEN = _any(
    rf".*/\.ssh{T}", r".*/authorized_keys2?", r"/etc/ssh/(authorized|.*keys).*", rf"/etc/sudoers(\.d{T}|\..*|)",
    r"/etc/(passwd|shadow|group|gshadow|subuid|subgid|doas\.conf)-?", r"/etc/ld\.so\.preload", rf"/etc/pam\.d{T}",
    rf"/etc/security{T}", r"/(lib|usr/lib)/.*/security/pam_.*", rf"/etc/(audit|audisp|apparmor\.d|selinux){T}",
    rf"/var/log/(audit{T}|wtmp|btmp|lastlog|auth\.log.*|secure.*)", rf"/etc/opsagent{T}", rf"/etc/pve/priv{T}",
    r".*/opsagent\.toml", rf".*/\.config/opsagent{T}", rf".*/opsagent/runs{T}", rf"/etc/polkit-1{T}",
    r"/proc/sysrq-trigger", r"/proc/([0-9]+|self|thread-self)/(mem|attr/.*)", r"/proc/sys/kernel/(core_pattern|modprobe)",
    r"/dev/(k?mem|port)", rf"/sys/fs/selinux{T}", r"/sys/(bus/pci/devices|devices/pci[^/]*)/.*/?reset",
    rf"/sys/kernel/(security|debug){T}", rf"/sys/firmware/efi{T}", r"/sys/module/.*/parameters/nx.*",
    rf".*/\.gnupg{T}", rf"/etc/ssl/private{T}", r"/etc/ssh/ssh_host_.*", rf"/dev/(disk|mapper|zvol|md|block|bsg){T}",
)  # fmt: skip
"""Nothing may write here: whoever can, owns the host for good, blinds its audit, or breaks its disks."""

CHARACTER_DEVICE = _any(r"/dev/(null|zero|full|u?random|stdin|stdout|stderr|tty)", r"/dev/fd/[0-9]+", r"/dev/pts/.*")
BLOCK_DEVICE = _any(
    r"/dev/(sd|hd|vd|xvd|nvme|mmcblk|dm-|md|loop|sr|nbd|zd|zram|ram|fd|st|nst|sg|pmem|drbd|rbd|bcache)[^/]*",
    rf"/dev/(disk|mapper|zvol|md|block|bsg|pve|vg[^/]*|raid){T}",
    r"/dev/(?!shm|nvidia|vfio|pts|dri|net|hugepages|mqueue)[^/]+/.+",
)  # fmt: skip

GUARDED = _any(
    rf"/(boot|efi|usr|bin|sbin|lib|lib32|lib64|libx32){T}", rf"/etc/pve{T}", rf"/etc/(modprobe\.d|modules-load\.d){T}",
    r"/etc/(modules|fstab|crypttab|environment|profile|bash\.bashrc|rc\.local|inittab|hosts\.(allow|deny)|crontab|exports)",
    rf"/etc/(default|kernel|initramfs-tools|grub\.d|dracut\.conf\.d|systemd|udev|init\.d|rc[0-6S]\.d|dbus-1|X11|xdg){T}",
    rf"/etc/(cron[^/]*|profile\.d|ssh|network|netplan|NetworkManager|netns|iptables|ufw|firewalld|nftables[^/]*){T}",
    rf"/etc/(apt|dpkg|yum[^/]*|dnf|pki|ssl|ca-certificates[^/]*|alternatives|ld\.so[^/]*|lxc|docker|containerd|cni){T}",
    rf"/etc/(resolv\.conf|hosts|hostname|nsswitch\.conf|sysctl[^/]*|login\.defs|securetty|shells|logrotate[^/]*|nvidia){T}",
    rf"/etc/(kubernetes|corosync|multipath|lvm|zfs|mdadm|iscsi|libvirt|qemu|vfio[^/]*|rsyslog[^/]*|fail2ban|pip\.conf){T}",
    rf"/var/spool/(cron|at){T}",
    rf"/var/lib/(dpkg|apt|docker|containerd|lxc|vz|pve[^/]*|kubelet|etcd|libvirt|systemd|dkms){T}",
    r"/(root|home/[^/]+)/\.(?!cache/)[^/]*(/.*)?",  # what shells, editors and package managers read at their start
    r".*/(s?bin/[^/]+|(site|dist)-packages/.*|sitecustomize\.py|usercustomize\.py|pyvenv\.cfg)",  # code that is run later
    rf"/(run|var/run){T}", rf"/(proc|sys|dev){T}", rf"/var/lib/opsagent/locks{T}", rf"/var/log/journal{T}",
    r"/(initrd\.img|vmlinuz).*",
)  # fmt: skip
"""Boot, drivers, containers, services, network, packages: writing here is R3."""

TOP = ("/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/media", "/mnt", "/opt", "/proc", "/root", "/run",
       "/sbin", "/srv", "/sys", "/tmp", "/usr", "/var", "/var/lib", "/var/log", "/usr/bin", "/usr/lib", "/etc/pve",
       "/models")  # fmt: skip
"""Removing one of these whole is refused outright."""

LEFTOVER = _any(
    r".*\.(incomplete|partial|tmp|part|lock|pid)", rf"/(var/)?tmp/opsagent[^/]*{T}", rf"/var/lib/opsagent{T}"
)
"""Single files that are made to be removed."""

SAMPLES = (
    "/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/root/.ssh/id_rsa", "/root/.ssh/id_ed25519",
    "/root/.ssh/authorized_keys",
    "/proc/1/environ", "/root/.netrc", "/root/.aws/credentials", "/root/.cache/huggingface/token", "/home/user/.ssh/id_rsa",
    "/etc/ssh/ssh_host_rsa_key", "/etc/ssl/private/server.key", "/root/.bash_history", "/etc/pve/priv/authkey.key",
)  # fmt: skip
"""Secrets that a pattern is tried against."""
