#!/usr/bin/env bash
# build.sh FOLDER: makes FOLDER/linux, Debian's own kernel (its linux-source package) as a User-Mode-Linux program with
# Soft-RoCE (rdma_rxe) built in. This takes about five minutes on two cores, once; 1.5 GB while it builds, 10 MB
# afterwards.
set -euo pipefail

readonly folder=$(mkdir -p "${1:?build.sh FOLDER}" && readlink -f "$1")
readonly package=linux-source-6.1
readonly source_folder=$folder/source

fail() {
  echo "build.sh: $*" >&2
  exit 1
}

for tool in apt-get bc bison dpkg-deb flex gcc make xz; do
  command -v $tool >/dev/null || fail "$tool is missing; run: ./dev install-packages"
done

# The source, as Debian patches it. A package that is already in FOLDER is used unchanged.
if ! compgen -G "$folder/${package}_*.deb" >/dev/null; then
  (cd "$folder" && apt-get download --quiet $package) >"$folder/download.log" 2>&1 ||
    fail "cannot download $package; see $folder/download.log (apt-get update?)"
fi
rm -rf "$source_folder"
mkdir -p "$source_folder"
dpkg-deb --fsys-tarfile "$(compgen -G "$folder/${package}_*.deb" | tail -n 1)" |
  tar --extract --to-stdout ./usr/src/$package.tar.xz | xz --decompress --threads=0 |
  tar --extract --directory "$source_folder" --strip-components=1

cd "$source_folder"
# User-Mode Linux saves its programs' registers in a buffer of 2696 bytes, less than a CPU with AMX tile registers
# fills. The area of XSAVE is then 11008 bytes, and every program would die of "ptrace set fp regs failed".
sed -i 's/DEFINE_LONGS(HOST_FP_SIZE, 2696)/DEFINE_LONGS(HOST_FP_SIZE, 11008)/' arch/x86/um/user-offsets.c

# Options for RDMA, for the network interface below it, and for the files of the machine around the kernel.
readonly wanted=(INFINIBAND INFINIBAND_USER_ACCESS INFINIBAND_USER_MAD INFINIBAND_ADDR_TRANS RDMA_RXE
  VIRTIO_UML UML_PCI_OVER_VIRTIO PCI UML_NET_VECTOR IPV6 PACKET HOSTFS DEVTMPFS TMPFS NAMESPACES NET_NS
  CRYPTO_CRC32 CRYPTO_CRC32C)
# Options that would only make the build longer.
readonly unwanted=(MODULES DEBUG_INFO DEBUG_KERNEL SOUND UML_SOUND USB BLK_DEV_LOOP BLK_DEV_NBD EXT4_FS REISERFS_FS
  ISO9660_FS AUTOFS4_FS QUOTA HID HID_SUPPORT INPUT WIRELESS WLAN ETHERNET SCSI ATA MD)
{
  make ARCH=um defconfig
  for option in "${wanted[@]}"; do ./scripts/config --enable "$option"; done
  for option in "${unwanted[@]}"; do ./scripts/config --disable "$option"; done
  ./scripts/config --set-val KERNEL_STACK_ORDER 3
  make ARCH=um olddefconfig
} >"$folder/configure.log" 2>&1 || fail "the kernel's configuration failed; see $folder/configure.log"
for option in INFINIBAND_USER_ACCESS INFINIBAND_USER_MAD INFINIBAND_ADDR_TRANS RDMA_RXE UML_NET_VECTOR HOSTFS; do
  grep -qx "CONFIG_$option=y" .config || fail "this kernel source has no CONFIG_$option for User-Mode Linux"
done
nice -n 10 make ARCH=um -j2 linux >"$folder/build.log" 2>&1 || fail "the kernel's build failed; see $folder/build.log"
strip -o "$folder/linux" linux
cd "$folder"
rm -rf "$source_folder"
