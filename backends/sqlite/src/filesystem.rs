//! The file systems that a lock file may be on: those that are known to be local.
//!
//! On a file system of several hosts, each host counts leases by a clock of its own and takes the others' locks for
//! dead. New ones of that sort come up, so what is not known is refused.

use std::io;
use std::path::Path;

/// The file system that the folder is on, if it is not known to be local.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn not_local(folder: &Path) -> io::Result<Option<String>> {
    // The numbers have 32 bits; where the field has 64, they may have been sign-extended.
    Ok(not_local_number(rustix::fs::statfs(folder)?.f_type as u32))
}

#[cfg(any(target_vendor = "apple", target_os = "freebsd", target_os = "dragonfly", target_os = "openbsd"))]
pub(super) fn not_local(folder: &Path) -> io::Result<Option<String>> {
    /// `MNT_LOCAL`, the same in all these systems.
    const LOCAL: u64 = 0x1000;
    let found = rustix::fs::statfs(folder)?;
    let local = u64::from(found.f_flags) & LOCAL != 0;
    Ok((!local).then(|| "a file system that the operating system does not call local".to_owned()))
}

/// On other systems there is no such call, and every file system counts as local.
#[cfg(not(any(
    target_os = "linux",
    target_os = "android",
    target_vendor = "apple",
    target_os = "freebsd",
    target_os = "dragonfly",
    target_os = "openbsd"
)))]
pub(super) fn not_local(_: &Path) -> io::Result<Option<String>> {
    Ok(None)
}

/// Of the local ones: ext2, ext3 and ext4, xfs, btrfs, bcachefs, zfs, f2fs, tmpfs, overlayfs. The kernel's `magic.h`
/// has the numbers. The file system under an overlay is not visible; nearly always it is a container on a disk of its
/// host.
#[cfg(any(target_os = "linux", target_os = "android"))]
const LOCAL: [u32; 8] =
    [0x0000_ef53, 0x5846_5342, 0x9123_683e, 0xca45_1a4e, 0x2fc1_2fc1, 0xf2f5_2010, 0x0102_1994, 0x794c_7630];

/// The names of others. One number serves all file systems in user space, such as folders of virtual machines.
#[cfg(any(target_os = "linux", target_os = "android"))]
const NAMES: [(u32, &str); 37] = [
    (0x0000_6969, "NFS"),
    (0x0000_517b, "SMB"),
    (0xff53_4d42, "SMB"),
    (0xfe53_4d42, "SMB"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "FUSE"),
    (0x00c3_6400, "Ceph"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x0000_564c, "NCP"),
    (0x786f_4256, "vboxsf"),
    (0x1983_0326, "BeeGFS"),
    (0xbacb_acbc, "hgfs"),
    (0x7c7c_6673, "Parallels"),
    (0x2003_0528, "OrangeFS"),
    (0xaad7_aaea, "PanFS"),
    (0xbeef_dead, "StorNext"),
    (0x6163_6673, "ACFS"),
    (0xa501_fcf5, "VxFS"),
    (0x0000_9fa0, "proc"),
    (0x6265_6572, "sysfs"),
    (0x8584_58f6, "ramfs"),
    (0x0000_f15f, "eCryptfs"),
    (0x7371_7368, "squashfs"),
    (0x0000_9660, "ISO 9660"),
    (0x0000_4d44, "FAT"),
    (0x2011_bab0, "exFAT"),
    (0x7366_746e, "NTFS"),
    (0x3153_464a, "JFS"),
    (0x5265_4973, "ReiserFS"),
    (0x0000_3434, "NILFS"),
    (0x0000_482b, "HFS+"),
];

#[cfg(any(target_os = "linux", target_os = "android"))]
fn not_local_number(number: u32) -> Option<String> {
    if LOCAL.contains(&number) {
        return None;
    }
    let name = NAMES.iter().find(|(known, _)| *known == number).map(|(_, name)| (*name).to_owned());
    Some(name.unwrap_or_else(|| format!("a file system with the number {number:#x}")))
}

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests {
    use super::*;

    #[test]
    fn only_file_systems_that_are_known_to_be_local_are_accepted() {
        for local in [0xef53, 0x5846_5342, 0x9123_683e, 0xca45_1a4e, 0x2fc1_2fc1, 0xf2f5_2010, 0x0102_1994, 0x794c_7630]
        {
            assert_eq!(not_local_number(local), None, "{local:#x}");
        }
        assert_eq!(not_local_number(0x6969).as_deref(), Some("NFS"));
        assert_eq!(not_local_number(0x6573_5546).as_deref(), Some("FUSE"));
        assert_eq!(not_local_number(0x1983_0326).as_deref(), Some("BeeGFS"));
        // A file system that does not exist yet.
        assert_eq!(not_local_number(0x1234_5678).as_deref(), Some("a file system with the number 0x12345678"));
    }

    #[test]
    fn a_folder_is_judged_by_the_file_system_it_is_on() {
        assert_eq!(not_local(Path::new("/proc")).unwrap().as_deref(), Some("proc"));
        assert_eq!(not_local(Path::new("/dev/shm")).unwrap(), None);
        assert!(not_local(Path::new("/no/such/folder")).is_err());
    }
}
