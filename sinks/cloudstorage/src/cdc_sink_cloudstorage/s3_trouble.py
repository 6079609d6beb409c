"""What the errors of S3 clients mean."""

from __future__ import annotations

from typing import Any

from botocore import exceptions

from cdc_sink_cloudstorage.authentication import is_specified
from cdc_sink_cloudstorage.options import CloudStorageOptions
from cdc_sink_cloudstorage.trouble import Trouble

__all__ = ["trouble_of"]

_RIGHTS = "s3:PutObject, s3:ListBucket and what else the documentation lists"
_WRONG_REGION = {
    "301",
    "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
    "InvalidRegion",
    "PermanentRedirect",
}
_DENIED = {"403", "AccessDenied", "AllAccessDisabled", "AccountProblem", "Forbidden", "InvalidObjectState"}
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired"}
_HOPELESS = {
    "EntityTooLarge": Trouble(reason="the file is larger than S3 takes", remedy="lower file_size", hopeless=True),
    "InvalidBucketName": Trouble(
        reason="no bucket can have that name", remedy="correct it in the sink's URI", hopeless=True
    ),
    "KeyTooLongError": Trouble(
        reason="the path is longer than S3 takes", remedy="shorten topic_prefix or the URI's path", hopeless=True
    ),
}


def trouble_of(error: BaseException, options: CloudStorageOptions) -> Trouble | None:
    """Return what *error*, of s3fs or botocore, means to somebody who has set *options*; None when not known."""
    response: dict[str, Any] = getattr(error, "response", None) or getattr(error.__cause__, "response", None) or {}
    code = str(response.get("Error", {}).get("Code", ""))
    if code:
        return _answered(code, response, options)
    return _unanswered(error, options)


def _answered(code: str, response: dict[str, Any], options: CloudStorageOptions) -> Trouble | None:
    where = "" if is_specified(options, "S3") else " in the environment"
    if code == "InvalidAccessKeyId":
        return Trouble(reason="S3 does not know the access key", remedy=f"check AWS_ACCESS_KEY_ID{where}")
    if code == "SignatureDoesNotMatch":
        return Trouble(
            reason="the secret key does not belong to the access key",
            remedy=f"check AWS_SECRET_ACCESS_KEY{where}{'' if where else ', percent-encoded inside a URI'}",
        )
    if code in _EXPIRED:
        return Trouble(
            reason="the temporary credentials have expired or are not valid",
            remedy=f"get new ones and set AWS_SESSION_TOKEN and both keys{where}",
        )
    if code in _DENIED:
        return Trouble(reason="these credentials may not use it", remedy=f"grant them {_RIGHTS}")
    if code == "NoSuchBucket":
        return Trouble(reason="the bucket does not exist", remedy="create it or correct its name in the sink's URI")
    if code in _WRONG_REGION:
        headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        region = response["Error"].get("Region") or headers.get("x-amz-bucket-region") or ""
        return Trouble(
            reason=f"the bucket is in another region{f', {region}' if region else ''}",
            remedy=f"set AWS_REGION={region}" if region else "set AWS_REGION to the bucket's region",
            hopeless=True,
        )
    if code == "InvalidStorageClass":
        return Trouble(
            reason=f"the store does not know the storage class '{options.s3_storage_class}'",
            remedy="correct S3_STORAGE_CLASS",
            hopeless=True,
        )
    if code == "RequestTimeTooSkewed":
        return Trouble(reason="this machine's clock and the store's differ too much", remedy="set the clock")
    if code in _HOPELESS:
        return _HOPELESS[code]
    message = str(response["Error"].get("Message") or code).splitlines()[0].rstrip(".")
    return Trouble(reason=f"the store answered '{message}'", remedy=f"see what S3 says of {code}")


def _unanswered(error: BaseException, options: CloudStorageOptions) -> Trouble | None:
    endpoint = f"'{options.aws_endpoint}'" if options.aws_endpoint else "of S3"
    if isinstance(error, exceptions.NoCredentialsError | exceptions.PartialCredentialsError):
        return Trouble(
            reason="there are no credentials for S3",
            remedy="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY with AUTH=specified, or in the environment, or set"
            " AWS_PROFILE",
        )
    if isinstance(error, exceptions.ProfileNotFound):
        return Trouble(reason=str(error), remedy="correct AWS_PROFILE or write the profile")
    if isinstance(error, exceptions.NoRegionError):
        return Trouble(reason="no region is known", remedy="set AWS_REGION")
    if isinstance(error, exceptions.InvalidRegionError):
        return Trouble(reason=f"'{options.aws_region}' is no region", remedy="correct AWS_REGION", hopeless=True)
    if isinstance(error, exceptions.SSLError):
        return Trouble(
            reason=f"the endpoint {endpoint} shows a certificate that is not trusted",
            remedy="correct AWS_ENDPOINT, or name the authority's certificates in AWS_CA_BUNDLE",
        )
    if isinstance(error, exceptions.HTTPClientError | exceptions.ConnectionError | ConnectionError | TimeoutError):
        return Trouble(
            reason=f"the endpoint {endpoint} cannot be reached",
            remedy="check the network and AWS_ENDPOINT" if options.aws_endpoint else "check the network and AWS_REGION",
        )
    if isinstance(error, ValueError) and "endpoint" in str(error).lower():
        return Trouble(reason=f"{endpoint} is no endpoint", remedy="write AWS_ENDPOINT as https://host:port")
    return None
